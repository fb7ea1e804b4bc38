"""What a backend is: one small protocol, one frozen capabilities value, jobs and observations.

Backends translate between jobs and a cluster's own words. They hold no policy: no retries, no state
that cannot be rebuilt, no decisions about trials. One shared suite (`airflows.testing.BackendContract`)
runs against every one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from airflows.errors import SubmitError
from airflows.ids import Token
from airflows.train import TrainConfig
from airflows.trial import Handle


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the engine needs to know of a backend, so that it never asks which one it is.

    Attributes:
        idempotent_submit: submitting a token twice is one run, so a lost answer is simply repeated.
        max_batch: most jobs in one `submit` call.
        queues_itself: it holds jobs until there is room; a non-adaptive sweep is given to it whole.
        visibility_lag_s: how long after an accepted submission `find` may still miss it.
        makes_mlflow_run: the service makes the MLflow run of each attempt itself.
        slots: trials that run at once here when the sweep does not say.
        shares_host: its runs die with this machine, so the ledger need not survive a power cut.
    """

    idempotent_submit: bool
    max_batch: int
    queues_itself: bool
    visibility_lag_s: float
    makes_mlflow_run: bool
    slots: int
    shares_host: bool


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt, ready to run: everything a backend may translate.

    Attributes:
        token: the attempt's name in every outside system.
        sweep: the sweep's id.
        number: the trial's number.
        attempt: counted from 0.
        launch_dir: the directory that holds the launch files on the root of the backend.
        files: launch file name to its bytes, for backends that upload rather than share a disk.
        nodes: machines (or process groups) the command runs on, at least 1.
        accelerators_per_node: GPUs of one node.
        accelerator_type: as in train.yaml, such as `GPU_8xH100`.
        work_dir: the directory the command starts in; None is the launch directory.
        env: variables set for the command on every node; never a secret.
        secrets: variable name to `scope/key`; the value is read where the command runs.
        secret_env: variables as `env`, whose values others must not see, such as MLflow's credentials: never
            in an argument, nor in a file that others may read.
        checkpoint_dir: the trial's checkpoint directory, the same for all its attempts.
        checkpoint_pattern: glob of what counts as a checkpoint, empty for the known forms.
        timeout_s: limit of this attempt in seconds, None for none.
        batch: name shared by the jobs of one submission, where the backend has such a thing.
        throttle: most jobs of its submission that may run at once, where the backend queues by itself; 0
            for no limit.
    """

    token: Token
    sweep: str
    number: int
    attempt: int
    launch_dir: Path
    files: Mapping[str, bytes]
    nodes: int
    accelerators_per_node: int
    accelerator_type: str
    work_dir: Path | None
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    checkpoint_dir: str
    checkpoint_pattern: str = ""
    timeout_s: float | None = None
    batch: str = ""
    throttle: int = 0
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)


class Phase(StrEnum):
    """Where a run is, as far as its backend can tell. UNKNOWN is never success and never failure."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a backend saw of one run.

    Attributes:
        phase: where the run is.
        exit_code: of the command (the first node that failed, else 0), once ENDED; None when an ended
            run left none, as after `kill -9` or a power cut.
        word: the scheduler's own word for how it ended, such as `OUT_OF_MEMORY` or `PREEMPTED`;
            `timed_out` and `killed` are the local backend's.
        detail: further words of the backend, for people.
        started_at: seconds since the epoch, UTC.
        ended_at: seconds since the epoch, UTC.
        host: the machine of node 0.
        resumed_from: the checkpoint the attempt started from, empty for none.
        node: the node that failed first.
    """

    phase: Phase
    exit_code: int | None = None
    word: str = ""
    detail: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    host: str = ""
    resumed_from: str = ""
    node: int = 0


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a backend can be used now.

    Attributes:
        available: it can.
        why_not: one sentence when it cannot.
        notes: what a person should know before submitting, such as limits that will bite.
    """

    available: bool
    why_not: str = ""
    notes: Sequence[str] = field(default=())


class Backend(Protocol):
    """Somewhere a trial can run.

    Every method but `wait` and `logs` may be called from a thread of the engine. Any of them may raise
    `BackendUnavailableError`, which means that nobody was asked and nothing is known.
    """

    @property
    def name(self) -> str:
        """The word in sweep.yaml, such as `local`."""

    @property
    def capabilities(self) -> Capabilities:
        """What the engine needs to know."""

    @property
    def root(self) -> Path:
        """The directory that holds launch directories, claims, snapshots and checkpoints."""

    def reach(self) -> Reach:
        """Say whether it can be used now; never raises."""

    def check(self, config: TrainConfig, base_dir: Path) -> Sequence[str]:
        """Return what people should know before runs of a train.yaml start here.

        Raises:
            SpecError: such a run can never start here, such as for want of a secret.
        """

    def room_for(self, config: TrainConfig) -> int:
        """Return how many runs of a train.yaml go on at once here when the sweep does not say, at least 1."""

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Start the jobs; answer in their order.

        A handle says the run was accepted and can be polled. An error says which of three it is:
        rejected (never will), unsent (did not start, try later) or ambiguous (ask `find`).
        """

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the handles of those tokens that this backend already knows, ended ones included."""

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe the runs. A handle that is missing in the answer is unknown, not ended."""

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Ask that the runs end: signal, grace time, kill. A request, idempotent; poll tells the rest."""

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the log of one node, line by line without newlines; with `lines` only the last ones."""

    def wait(self, timeout_s: float) -> None:
        """Return when something may have changed, or after `timeout_s` seconds."""
