"""Small jobs that run for real, and waiting for what becomes of them: for tests of backends."""

# ruff: noqa: S101  (tests speak in assert)

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from airflows import ids
from airflows.backends.base import Backend, Job, Observation, Phase
from airflows.errors import SubmitError
from airflows.ids import SweepId, Token
from airflows.trial import Handle

_SWEEP = SweepId("contract-0a1b2c")


@dataclass(slots=True)
class MakeJob:
    """Makes jobs, each of a trial of its own, with launch files below the backend's root.

    Attributes:
        backend: which they are for.
        accelerator_type: what they ask for, one accelerator a node.
    """

    backend: Backend
    accelerator_type: str = "GPU_1xA10"
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __call__(
        self,
        command: str,
        *,
        attempt: int = 0,
        nodes: int = 1,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Job:
        """Return a job whose command is a bash script."""
        number = next(self._numbers)
        launch_dir = self.backend.root / "runs" / _SWEEP / str(number) / f"a{attempt}"
        checkpoints = self.backend.root / "checkpoints" / _SWEEP / str(number)
        files = {"command.sh": command.encode(), "training_config.yaml": b"experiment_name: contract\n"}
        for directory in (launch_dir / "logs", checkpoints):
            directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (launch_dir / name).write_bytes(content)
        return Job(
            token=ids.token(_SWEEP, number, attempt),
            sweep=_SWEEP,
            number=number,
            attempt=attempt,
            launch_dir=launch_dir,
            files=files,
            nodes=nodes,
            accelerators_per_node=1,
            accelerator_type=self.accelerator_type,
            work_dir=None,
            env={"AIRFLOWS_CHECKPOINT_DIR": str(checkpoints), **(env or {})},
            secrets={},
            checkpoint_dir=str(checkpoints),
            timeout_s=timeout_s,
        )


class BackendSuite:
    """Fixtures and helpers for tests of a backend; see `BackendContract`.

    Attributes:
        patience_s: how long a run may take from submission to its end before a test fails.
        clock_skew_s: how far the backend's times may be off.
        accelerator_type: what the jobs ask for.
    """

    patience_s: ClassVar[float] = 60.0
    clock_skew_s: ClassVar[float] = 2.0
    accelerator_type: ClassVar[str] = "GPU_1xA10"

    @pytest.fixture
    def backend(self) -> Backend:
        """Return the backend, with a root of its own; override this."""
        message = "a subclass must give the `backend` fixture"
        raise NotImplementedError(message)

    @pytest.fixture
    def reopen(self, backend: Backend) -> Callable[[], Backend]:
        """Return what opens the same backend anew, as the next driver does; override where it can be."""
        return lambda: backend

    @pytest.fixture
    def make_job(self, backend: Backend) -> MakeJob:
        """Return what makes jobs for the backend."""
        return MakeJob(backend, self.accelerator_type)

    def start(self, backend: Backend, job: Job) -> Handle:
        """Submit a job that must be accepted."""
        (answer,) = backend.submit([job])
        assert not isinstance(answer, SubmitError), answer
        return answer

    def until(self, backend: Backend, handle: Handle, *phases: Phase) -> Observation:
        """Wait until a run is seen in one of the phases."""
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            seen = backend.poll([handle]).get(handle)
            if seen is not None and seen.phase in phases:
                return seen
            backend.wait(0.2)
        pytest.fail(f"{handle} was not {' or '.join(phases)} within {self.patience_s} s")

    def end(self, backend: Backend, handle: Handle) -> Observation:
        """Wait for the end of a run."""
        return self.until(backend, handle, Phase.ENDED)

    def until_logged(self, backend: Backend, handle: Handle, text: str, node: int = 0) -> None:
        """Wait until a line is in the log, such as one by which a command says that it has begun."""
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            if text in backend.logs(handle, node=node, follow=False):
                return
            backend.wait(0.05)
        pytest.fail(f"{text!r} was not logged within {self.patience_s} s")

    def until_found(self, backend: Backend, token: Token) -> Handle:
        """Wait until a run can be found by its token."""
        deadline = time.monotonic() + max(self.patience_s, backend.capabilities.visibility_lag_s)
        while time.monotonic() < deadline:
            if (handle := backend.find([token]).get(token)) is not None:
                return handle
            backend.wait(0.2)
        pytest.fail(f"{token} was not found in time")

    def lines(self, backend: Backend, handle: Handle, node: int = 0) -> list[str]:
        """Return the whole log of a node."""
        return list(backend.logs(handle, node=node, follow=False))
