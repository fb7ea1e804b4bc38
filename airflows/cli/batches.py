"""What a sweep would hand to a backend that takes batches, as files a person can read. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflows import ids
from airflows.backends.base import Job
from airflows.keys import effective
from airflows.train import ACCELERATORS

if TYPE_CHECKING:
    from airflows.sweepfile import LoadedSweep


@runtime_checkable
class Previewing(Protocol):
    """A backend that can show what it would submit."""

    @property
    def root(self) -> Path:
        """The directory that holds launch directories."""

    def preview(self, jobs: Sequence[Job]) -> Mapping[str, str]:
        """Return what the first batch of these jobs would be, as file name to text; nothing is written."""


def files_of(backend: object, sweep: LoadedSweep, trials: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the files of a sweep's first batch by name; empty where a backend takes no batches.

    Args:
        backend: where it would run.
        sweep: the sweep.
        trials: `number` and `overrides` of each.
    """
    if not isinstance(backend, Previewing):
        return {}
    jobs = [_job(sweep, trial, backend.root) for trial in trials]
    return backend.preview(jobs) if jobs else {}


def _job(sweep: LoadedSweep, trial: Mapping[str, Any], root: Path) -> Job:
    sweep_id = ids.sweep_id(sweep.spec.name, sweep.definition_digest)
    tree = effective(sweep.base.tree, trial["overrides"])
    compute, minutes, number = tree["compute"], tree.get("timeout_minutes"), trial["number"]
    per_node = ACCELERATORS[compute["accelerator_type"]]
    return Job(
        token=ids.token(sweep_id, number, 0),
        sweep=sweep_id,
        number=number,
        attempt=0,
        launch_dir=root / "runs" / sweep_id / str(number) / "a0",
        files={},
        nodes=int(compute["num_accelerators"]) // per_node,
        accelerators_per_node=per_node,
        accelerator_type=compute["accelerator_type"],
        work_dir=None,
        env={},
        secrets={},
        checkpoint_dir="",
        checkpoint_pattern=(sweep.spec.checkpoint.pattern or ""),
        timeout_s=None if minutes is None else float(minutes) * 60,
        throttle=sweep.spec.limits.concurrent or 0,
    )
