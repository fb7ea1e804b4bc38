"""What a backend is: one small protocol, one frozen capabilities value, jobs and observations.

Backends translate between jobs and a cluster's own words. They hold no policy: no retries, no state
that cannot be rebuilt, no decisions about trials. One shared suite (`airflows.testing.BackendContract`)
runs against every one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from airflows.errors import SubmitError
from airflows.ids import Token
from airflows.train import TrainConfig
from airflows.trial import Handle


class Packing(StrEnum):
    """How several trials share what one would have.

    NONE: they do not. SLOTS: each is a run of its own, of which more go on at once. ALLOCATIONS: so many jobs
    of one `submit` as `Job.pack` says are one allocation, which ends with the last of them.
    """

    NONE = "none"
    SLOTS = "slots"
    ALLOCATIONS = "allocations"


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
        uploads: its runs see no disk of this machine: launch files and code are sent, and the root is only
            where they are kept until then.
        retries_itself: failed attempts are tried again there, so an end that is told is the last one.
        packing: how it runs several trials side by side on what one would have.
    """

    idempotent_submit: bool
    max_batch: int
    queues_itself: bool
    visibility_lag_s: float
    makes_mlflow_run: bool
    slots: int
    shares_host: bool
    uploads: bool = False
    retries_itself: bool = False
    packing: Packing = Packing.NONE


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
        code: the kept code for backends that upload it, `snapshots/<digest>/<root name>`; None for none.
        is_single: it was started by `airflows run`, and no other trial shares anything with it.
        checkpoint_dir: the trial's checkpoint directory, the same for all its attempts.
        checkpoint_pattern: glob of what counts as a checkpoint, empty for the known forms.
        timeout_s: limit of this attempt in seconds, None for none.
        batch: name shared by the jobs of one submission, where the backend has such a thing.
        throttle: most jobs of its submission that may run at once, where the backend queues by itself; 0
            for no limit.
        avoid: hosts that it should not run on if there are others, by the names that observations have.
        place: which of several places it is for, empty where there is only one.
        pack: so many jobs run side by side on what one would have, see `Capabilities.packing`.
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
    code: Path | None = None
    is_single: bool = False
    avoid: tuple[str, ...] = ()
    place: str = ""
    pack: int = 1


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
        mlflow_run_id: the MLflow run that the service made for the newest attempt, empty while there is none
            and where the engine makes them.
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
    mlflow_run_id: str = ""


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """A run that its backend shows as waiting or running, whether or not the ledger knows of it.

    Attributes:
        handle: what `submit` would have answered: the ledger is asked for it.
        name: of the run in the backend, for people who look there.
        token: of the attempt, empty where it cannot be told.
        phase: QUEUED, RUNNING, or UNKNOWN for a word of the backend that nobody knows.
        word: the backend's own word for its state, such as `PENDING`.
        detail: further words of the backend, such as why it waits.
        host: the machine of node 0.
        submitted_at: seconds since the epoch, UTC.
        started_at: seconds since the epoch, UTC.
    """

    handle: Handle
    name: str
    token: str
    phase: Phase
    word: str = ""
    detail: str = ""
    host: str = ""
    submitted_at: float | None = None
    started_at: float | None = None


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


@runtime_checkable
class ListsRuns(Protocol):
    """What a backend may offer besides: to tell what it has, as `airflows list --remote` asks."""

    def remote_runs(self) -> Iterable[RemoteRun]:
        """Return the runs that wait or run now and have one of our names, those of other ledgers included.

        Only this user's, in any order, and without a word about runs that have ended. What a name of ours
        is, a backend says by its form: nothing on a disk or in the ledger is needed to know it.

        Raises:
            BackendUnavailableError: nobody was asked, so nothing is known.
        """


@runtime_checkable
class KeepsFromHosts(Protocol):
    """What a backend that queues by itself may offer besides: to keep what waits there from hosts."""

    def avoid(self, handles: Sequence[Handle], hosts: Sequence[str]) -> None:
        """Ask that those of the runs which wait do not start on these hosts, if there are others.

        A request, idempotent; of several the last one counts, and no host takes it back.

        Raises:
            BackendUnavailableError: nobody was asked.
        """


@runtime_checkable
class WithdrawsRuns(Protocol):
    """What a backend with a queue may offer besides: to take out what waits, and nothing that has started."""

    def withdraw(self, handles: Sequence[Handle]) -> None:
        """Ask that those of the runs which wait never start; the others go on.

        Idempotent; poll tells the rest.

        Such a run ends without an exit code, and its word is `CANCELLED`.

        Raises:
            BackendUnavailableError: nobody was asked.
        """


class KeepsCheckpoints(Protocol):
    """What a backend with `uploads` says besides: where its runs keep checkpoints."""

    @property
    def checkpoint_root(self) -> Path:
        """Gets the trials' checkpoints, as the nodes see it; a path of this machine only by chance."""

    def newest_checkpoint(self, directory: str, pattern: str) -> tuple[str, int] | None:
        """Return (path, step) of the newest complete checkpoint, as `airflows.checkpoints.newest` does.

        Raises:
            BackendUnavailableError: it cannot be told now.
        """


@runtime_checkable
class ChecksPaths(Protocol):
    """What a backend with `uploads` may offer besides: to tell which directories its runs see."""

    def path_hint(self, path: str) -> str:
        """Return what to do about a checkpoint directory that runs do not see; empty when they see it."""


@runtime_checkable
class ChecksSecrets(Protocol):
    """What a backend may offer besides: to tell whether MLflow's credentials get to its runs."""

    def secret_hint(self, names: Iterable[str]) -> str:
        """Return what to do about variables of `Job.secret_env`; empty when runs get them."""


class MakesRuns(KeepsCheckpoints, Protocol):
    """What a backend with `makes_mlflow_run` and `uploads` says besides: where its service keeps things."""

    @property
    def tracking_uri(self) -> str:
        """The only MLflow that its runs log to."""

    def experiment(self, config: TrainConfig) -> str:
        """Return the name of the MLflow experiment that the service uses for runs of a train.yaml.

        Raises:
            BackendUnavailableError: it cannot be told now.
        """


@runtime_checkable
class DescribesRuns(Protocol):
    """What a backend may offer besides: to tell of runs that nobody here has submitted."""

    def describe(self, handle: Handle) -> Mapping[str, Any]:
        """Return what the backend knows of a run, for people and as JSON.

        Raises:
            BackendUnavailableError: it did not answer.
            NotFoundError: it knows no such run.
        """

    def logs_of(
        self, handle: Handle, *, node: int, follow: bool, lines: int | None, attempt: int | None
    ) -> Iterator[str]:
        """Yield the log of one node, as `logs` does, of one of the attempts that the backend itself made."""


def keeper_of(backend: Backend) -> KeepsCheckpoints | None:
    """Return a backend as one whose runs keep checkpoints out of our sight; None for others."""
    return cast("KeepsCheckpoints", backend) if backend.capabilities.uploads else None


def service_of(backend: Backend) -> MakesRuns | None:
    """Return a backend as one whose service makes the MLflow runs; None when it does not."""
    return cast("MakesRuns", backend) if backend.capabilities.makes_mlflow_run else None
