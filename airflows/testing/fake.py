"""A backend whose cluster is a dictionary, with its own clock and scripted outcomes.

It outlives drivers, as a real cluster does: hand the same `FakeCluster` to the next driver's
`FakeBackend` and it finds what the last one started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflows.backends.base import Capabilities, Job, Observation, Packing, Phase, Reach
from airflows.errors import BackendUnavailableError, SubmitAmbiguousError, SubmitError
from airflows.ids import Token
from airflows.train import TrainConfig
from airflows.trial import Handle


class ManualClock:
    """Seconds since the epoch that move only when told to."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.now += seconds


@dataclass(frozen=True, slots=True)
class Script:
    """What one attempt does.

    Attributes:
        seconds: how long it runs.
        exit_code: what it ends with; None leaves no exit status.
        word: the scheduler's word.
        lines: its log.
        queued: how long it waits before it runs.
        host: where it runs.
    """

    seconds: float = 1.0
    exit_code: int | None = 0
    word: str = ""
    lines: Sequence[str] = ()
    queued: float = 0.0
    host: str = "fake"


@dataclass(slots=True)
class FakeRun:
    """One run that the cluster accepted."""

    job: Job
    script: Script
    submitted_at: float
    cancelled_at: float | None = None

    def observe(self, now: float) -> Observation:
        """Return how the run stands at a time."""
        starts = self.submitted_at + self.script.queued
        ends = starts + self.script.seconds
        if self.cancelled_at is not None and self.cancelled_at < starts:
            return Observation(Phase.ENDED, word="CANCELLED", ended_at=self.cancelled_at)
        if self.cancelled_at is not None and self.cancelled_at < ends:
            return Observation(Phase.ENDED, 143, "killed", started_at=starts, ended_at=self.cancelled_at)
        if now < starts:
            return Observation(Phase.QUEUED)
        if now < ends:
            return Observation(Phase.RUNNING, started_at=starts, host=self.script.host)
        return Observation(
            Phase.ENDED,
            self.script.exit_code,
            self.script.word,
            started_at=starts,
            ended_at=ends,
            host=self.script.host,
        )


@dataclass(slots=True)
class FakeCluster:
    """What is out there: runs by token, and every submission that was accepted, in order.

    Attributes:
        clock: moved by `FakeBackend.wait`.
        scripts: chooses what a job does; default: one second, exit 0.
        on_end: called once with the job of a run that is first seen ended with 0.
        submissions: tokens in the order in which they were accepted, a repeated one twice.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    scripts: Callable[[Job], Script] = lambda _job: Script()
    on_end: Callable[[Job], None] = lambda _job: None
    runs: dict[Token, FakeRun] = field(default_factory=dict)
    submissions: list[Token] = field(default_factory=list)
    ended: set[Token] = field(default_factory=set)


class FakeBackend:
    """A driver's connection to a `FakeCluster`.

    Attributes:
        away: every call raises `BackendUnavailableError` while it is set.
        lose_replies: that many further submissions are accepted, but answered as ambiguous.
        visible_after_s: `find` misses runs younger than this.
        refuse: returns what is answered to a job that is not accepted.
        on_submit: what happens while a submission is on its way, before anything is accepted.
        waited: the seconds of each `wait`.
        max_batch: most jobs in one `submit`.
        offered: the number of jobs of each `submit`.
        packing: how it runs several trials on what one would have.
    """

    name = "fake"

    def __init__(
        self, cluster: FakeCluster, root: Path, *, slots: int = 4, visible_after_s: float = 0.0
    ) -> None:
        self._cluster = cluster
        self._root = root
        self._slots = slots
        self.visible_after_s = visible_after_s
        self.away = False
        self.lose_replies = 0
        self.refuse: Callable[[Job], SubmitError | None] = lambda _job: None
        self.on_submit: Callable[[], None] = lambda: None
        self.waited: list[float] = []
        self.max_batch = 10
        self.offered: list[int] = []
        self.packing = Packing.NONE

    @property
    def clock(self) -> ManualClock:
        """The cluster's time."""
        return self._cluster.clock

    @property
    def capabilities(self) -> Capabilities:
        """What the engine needs to know."""
        return Capabilities(
            idempotent_submit=False,
            max_batch=self.max_batch,
            queues_itself=False,
            visibility_lag_s=self.visible_after_s,
            makes_mlflow_run=False,
            slots=self._slots,
            shares_host=False,
            packing=self.packing,
        )

    @property
    def root(self) -> Path:
        """Where launch directories would be."""
        return self._root

    def reach(self) -> Reach:
        """Say whether it answers."""
        return Reach(not self.away, "it is away" if self.away else "")

    def check(self, config: TrainConfig, base_dir: Path) -> Sequence[str]:
        """Accept everything."""
        del config, base_dir
        return ()

    def room_for(self, config: TrainConfig) -> int:
        """Return what the test said."""
        del config
        return self._slots

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Accept the jobs; a token that runs already is run again, as a careless cluster would."""
        self._answer()
        self.offered.append(len(jobs))
        self.on_submit()
        return [self.refuse(job) or self._accept(job) for job in jobs]

    def _accept(self, job: Job) -> Handle | SubmitError:
        cluster = self._cluster
        cluster.submissions.append(job.token)
        cluster.runs[job.token] = FakeRun(job, cluster.scripts(job), cluster.clock())
        if self.lose_replies:
            self.lose_replies -= 1
            return SubmitAmbiguousError("the answer to the submission was lost.")
        return Handle(f"fake:{job.token}")

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the runs old enough to be seen."""
        self._answer()
        oldest = self._cluster.clock() - self.visible_after_s
        return {
            token: Handle(f"fake:{token}")
            for token in tokens
            if token in self._cluster.runs and self._cluster.runs[token].submitted_at <= oldest
        }

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe runs at the cluster's time."""
        self._answer()
        return {
            handle: self._observe(handle) for handle in handles if self._token(handle) in self._cluster.runs
        }

    def _observe(self, handle: Handle) -> Observation:
        cluster, token = self._cluster, self._token(handle)
        seen = cluster.runs[token].observe(cluster.clock())
        if seen.phase is Phase.ENDED and seen.exit_code == 0 and token not in cluster.ended:
            cluster.ended.add(token)
            cluster.on_end(cluster.runs[token].job)
        return seen

    def cancel(self, handles: Sequence[Handle]) -> None:
        """End runs at once."""
        self._answer()
        for handle in handles:
            run = self._cluster.runs.get(self._token(handle))
            if run is not None and run.cancelled_at is None:
                run.cancelled_at = self._cluster.clock()

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the scripted log; every node has the same."""
        del node, follow
        written = list(self._cluster.runs[self._token(handle)].script.lines)
        yield from written if lines is None else written[len(written) - min(lines, len(written)) :]

    def wait(self, timeout_s: float) -> None:
        """Move the clock on instead of waiting."""
        self.waited.append(timeout_s)
        self._cluster.clock.advance(max(timeout_s, 0.05))

    def _token(self, handle: Handle) -> Token:
        return Token(handle.removeprefix("fake:"))

    def _answer(self) -> None:
        if self.away:
            message = "the fake cluster does not answer."
            raise BackendUnavailableError(message)


class QueueingBackend(FakeBackend):
    """A driver's connection to a cluster with a queue, out of which runs can be taken."""

    def withdraw(self, handles: Sequence[Handle]) -> None:
        """End those of the runs that have not started; the others go on."""
        self._answer()
        now = self._cluster.clock()
        self.cancel([h for h in handles if self._waits(h, now)])

    def _waits(self, handle: Handle, now: float) -> bool:
        run = self._cluster.runs.get(self._token(handle))
        return run is not None and run.observe(now).phase is Phase.QUEUED
