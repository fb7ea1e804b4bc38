"""What a sweep would hand to a backend, as files a person can read. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflows import ids
from airflows.backends.base import Job
from airflows.keys import effective
from airflows.train import ACCELERATORS
from airflows.yamlio import dump

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
    """Return the files of a sweep's first batch by name; empty where a backend shows none.

    Args:
        backend: where it would run.
        sweep: the sweep.
        trials: `number` and `overrides` of each.
    """
    if not isinstance(backend, Previewing):
        return {}
    trees = ((trial["number"], effective(sweep.base.tree, trial["overrides"])) for trial in trials)
    # Ten thousand of them would take seconds, and only the first one's files are looked at.
    jobs = [
        _job(sweep, number, tree, backend.root, files={} if at else _files(tree))
        for at, (number, tree) in enumerate(trees)
    ]
    return backend.preview(jobs) if jobs else {}


def _files(tree: Mapping[str, Any]) -> dict[str, bytes]:
    files = {"command.sh": str(tree["command"]), "training_config.yaml": dump(tree)}
    files |= {"hyperparameters.yaml": dump(tree["parameters"])} if tree.get("parameters") else {}
    return {name: text.encode() for name, text in files.items()}


def _job(
    sweep: LoadedSweep, number: int, tree: Mapping[str, Any], root: Path, *, files: Mapping[str, bytes]
) -> Job:
    sweep_id = ids.sweep_id(sweep.spec.name, sweep.definition_digest)
    compute, minutes = tree["compute"], tree.get("timeout_minutes")
    per_node = ACCELERATORS[compute["accelerator_type"]]
    return Job(
        token=ids.token(sweep_id, number, 0),
        sweep=sweep_id,
        number=number,
        attempt=0,
        launch_dir=root / "runs" / sweep_id / str(number) / "a0",
        files=files,
        nodes=int(compute["num_accelerators"]) // per_node,
        accelerators_per_node=per_node,
        accelerator_type=compute["accelerator_type"],
        work_dir=None,
        env={name: str(value) for name, value in (tree.get("env_variables") or {}).items()},
        secrets=tree.get("secrets") or {},
        checkpoint_dir="",
        checkpoint_pattern=(sweep.spec.checkpoint.pattern or ""),
        timeout_s=None if minutes is None else float(minutes) * 60,
        throttle=sweep.spec.limits.concurrent or 0,
        pack=sweep.spec.pack,
    )
