"""What the backend says of the trials in flight, and asking it to end some; seldom while it is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from airflows import ids
from airflows.backends.base import (
    Backend,
    KeepsFromHosts,
    Observation,
    Phase,
    WithdrawsRuns,
    keeper_of,
)
from airflows.checkpoints import newest
from airflows.engine.roster import Roster
from airflows.engine.submission import Submission
from airflows.errors import AirflowsError, BackendUnavailableError, TrackingUnavailableError
from airflows.failures import classify
from airflows.planner import Sighting
from airflows.retry import NO_PROGRESS, Progress
from airflows.trial import Handle, Reason, State, Trial

# Enough for what torchrun says of eight processes, and for what one of them has said before.
_TAIL_LINES = 120
_CANCEL_AGAIN_S = 30.0
_ASK_AGAIN_S = 10.0
_ASK_IDLE_AGAIN_S = 60.0
_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def back_off(times: int) -> float:
    """Return the seconds to leave somebody alone who has not answered so many times before."""
    return _BACK_OFF_S[min(times, len(_BACK_OFF_S) - 1)]


class Lookout:
    """Asks one backend about one sweep.

    Attributes:
        note: what is being waited for, empty when all is well.
        silent_since: when the backend was first asked in vain, None while it answers.
    """

    def __init__(
        self,
        sweep: str,
        backend: Backend,
        submission: Submission,
        roster: Roster,
        clock: Callable[[], float],
        latest_step: Callable[[Trial], int] = lambda _trial: -1,
    ) -> None:
        self._sweep = ids.SweepId(sweep)
        self._backend = backend
        self._submission = submission
        self._roster = roster
        self._clock = clock
        self._latest_step = latest_step
        self._silent_until = 0.0
        self._silences = 0
        self._asked_at = float("-inf")
        self._doubted_since: dict[int, float] = {}
        self._cancelled_at: dict[int, float] = {}
        self._kept_from: list[str] = []
        self.note = ""
        self.silent_since: float | None = None

    def look(
        self, in_flight: Sequence[Trial], now: float, must_go: Callable[[Trial], bool]
    ) -> Mapping[int, Sighting]:
        """Return what is known of trials by number; a backend that does not answer says nothing of any.

        Args:
            in_flight: the trials.
            now: seconds since the epoch, UTC.
            must_go: whether a trial is to be cancelled anyway.
        """
        self._doubted_since = {
            t.number: self._doubted_since.get(t.number, t.claimed_at or now)
            for t in in_flight
            if t.state is State.SUBMITTING
        }
        if not in_flight or now < self._silent_until:
            return {}
        self.note = ""
        try:
            sightings = {**self._find(in_flight, must_go), **dict(self._poll(in_flight))}
        except BackendUnavailableError as exc:
            self._be_silent(exc)
            return {}
        self._answered(now)
        self.note = self.note or _why_all_wait(sightings)
        return sightings

    def see_whether_it_answers(self, now: float, *, is_wanted: bool) -> None:
        """Ask a backend that holds nothing whether it would answer.

        Args:
            now: seconds since the epoch, UTC.
            is_wanted: something may be taken out of a queue for it; else it is asked more seldom.
        """
        again_s = _ASK_AGAIN_S if is_wanted or self.silent_since is not None else _ASK_IDLE_AGAIN_S
        if now < max(self._silent_until, self._asked_at + again_s):
            return
        self.note = ""
        try:
            self._backend.find([ids.token(self._sweep, 0, 0)])
        except BackendUnavailableError as exc:
            self._be_silent(exc)
        else:
            self._answered(now)

    def was_unreached(self, since: float, why: str) -> None:
        """Take it that the backend does not answer, because nothing could be submitted to it."""
        self.silent_since = since
        self._be_silent(why)

    def _answered(self, now: float) -> None:
        self._silences, self.silent_since, self._asked_at = 0, None, now

    def cancel(self, in_flight: Iterable[Trial], now: float) -> None:
        """Deliver cancels: at once, again after a restart, and again when a run does not go."""
        stopping = {trial.number: trial for trial in in_flight if trial.state is State.STOPPING}
        self._cancelled_at = {n: at for n, at in self._cancelled_at.items() if n in stopping}
        due = [
            trial
            for trial in stopping.values()
            if now >= self._cancelled_at.get(trial.number, float("-inf")) + _CANCEL_AGAIN_S
        ]
        if not due or now < self._silent_until:
            return
        try:
            self._end(due)
        except BackendUnavailableError as exc:
            self._be_silent(exc)
            return
        self._cancelled_at |= {trial.number: now for trial in due}

    def _end(self, trials: Sequence[Trial]) -> None:
        waiting: list[Trial] = []
        if isinstance(self._backend, WithdrawsRuns):
            waiting = [trial for trial in trials if trial.reason is Reason.MOVED]
            if waiting:
                self._backend.withdraw([_held(trial) for trial in waiting])
        others = [_held(trial) for trial in trials if not waiting or trial.reason is not Reason.MOVED]
        if others:
            self._backend.cancel(others)

    def keep_from_hosts(self, in_flight: Iterable[Trial], now: float) -> None:
        """Tell a backend that queues by itself of hosts that have turned out bad, or are no longer."""
        hosts = self._submission.avoided_at(self._backend.name)
        if hosts == self._kept_from or now < self._silent_until:
            return
        queued = [_held(trial) for trial in in_flight if trial.state is State.QUEUED]
        try:
            if queued and isinstance(self._backend, KeepsFromHosts):
                self._backend.avoid(queued, hosts)
        except BackendUnavailableError as exc:
            self._be_silent(exc)
            return
        self._kept_from = hosts

    def _be_silent(self, why: BackendUnavailableError | str) -> None:
        """Ask the backend nothing for a while, longer each time."""
        wait = back_off(self._silences)
        self._silences += 1
        self.silent_since = self._clock() if self.silent_since is None else self.silent_since
        self._silent_until = self._clock() + wait
        self.note = f"{why} Asking again in {wait:.0f} s."

    def _find(self, in_flight: Sequence[Trial], must_go: Callable[[Trial], bool]) -> Mapping[int, Sighting]:
        """Look for trials of which nobody knows whether their submission got through."""
        submitting = {
            ids.token(self._sweep, trial.number, trial.attempt): trial
            for trial in in_flight
            if trial.state is State.SUBMITTING
        }
        if not submitting:
            return {}
        found = self._backend.find(list(submitting))
        runs = self._runs_of([t for token, t in submitting.items() if token in found], must_go)
        sightings: dict[int, Sighting] = {}
        for token, trial in submitting.items():
            if token not in found:
                sightings[trial.number] = Sighting(
                    absent=True, doubted_since=self._doubted_since.get(trial.number)
                )
            elif trial.number in runs:
                sightings[trial.number] = Sighting(handle=found[token], run_id=runs[trial.number])
        return sightings

    def _runs_of(self, adopted: Sequence[Trial], must_go: Callable[[Trial], bool]) -> Mapping[int, str]:
        """The MLflow runs of trials that a dead driver submitted; none while MLflow does not answer."""
        overrides = {trial.number: self._roster.overrides(trial.number) for trial in adopted}
        try:
            return self._submission.runs(adopted, overrides)
        except TrackingUnavailableError as exc:
            self.note = str(exc)
            # What is to be cancelled anyway need not wait for MLflow.
            return {trial.number: trial.run_id for trial in adopted if must_go(trial)}

    def _poll(self, in_flight: Sequence[Trial]) -> Iterator[tuple[int, Sighting]]:
        held = {trial.handle: trial for trial in in_flight if trial.handle is not None}
        if not held:
            return
        for handle, observation in self._backend.poll(list(held)).items():
            trial = held[handle]
            # Of most there is none to adopt, and this is asked of every trial at every look.
            if observation.mlflow_run_id and not self._adopt(trial, observation):
                continue
            if trial.state is State.STOPPING or not _ended_badly(observation):
                yield trial.number, Sighting(observation)
                continue
            yield trial.number, self._failed(trial, observation)

    def _failed(self, trial: Trial, seen: Observation) -> Sighting:
        verdict = classify(seen, self._tail(trial, seen.node))
        relieves = self._submission.would_relieve(trial.number, self._roster.overrides(trial.number))
        suspect = self._submission.hosts.is_suspect(seen.host)
        progress = self._progress(trial)
        return Sighting(seen, verdict=verdict, progress=progress, relieves=relieves, suspects_host=suspect)

    def _adopt(self, trial: Trial, seen: Observation) -> bool:
        """Make a service's MLflow run known as the trial's; False when its end must wait for that."""
        try:
            self._submission.adopt(trial, seen.mlflow_run_id, self._roster.overrides(trial.number))
        except TrackingUnavailableError as exc:
            self.note = str(exc)
            return seen.phase is not Phase.ENDED
        return True

    def _tail(self, trial: Trial, failed_first: int) -> list[str]:
        """The last lines of every node's log, the cause last, as far as they can be read."""
        values = {**self._roster.overrides(trial.number), **self._submission.relief(trial.number)}
        nodes = self._submission.nodes(values, trial.backend)
        return tail(self._backend, _held(trial), nodes, failed_first)

    def _progress(self, trial: Trial) -> Progress:
        keeper = keeper_of(self._backend)
        look = newest if keeper is None else keeper.newest_checkpoint
        found = look(*self._submission.checkpoints(trial.number))
        progress = NO_PROGRESS if found is None else Progress(*found)
        if progress.is_beyond(trial):
            return progress
        return replace(progress, metric_step=self._latest_step(trial))


def tail(backend: Backend, handle: Handle, nodes: int, failed_first: int) -> list[str]:
    """Return the last lines of every node's log, the cause last, as far as they can be read."""
    lines: list[str] = []
    for node in [*(n for n in range(nodes) if n != failed_first), failed_first]:
        try:
            lines += backend.logs(handle, node=node, follow=False, lines=_TAIL_LINES)
        except (AirflowsError, OSError):
            continue
    return lines


def _why_all_wait(sightings: Mapping[int, Sighting]) -> str:
    """Return what the backend says when nothing runs and everything waits in its queue."""
    seen = [sighting.observation for sighting in sightings.values()]
    if not all(one is not None and one.phase is Phase.QUEUED for one in seen):
        return ""
    details = Counter(one.detail for one in seen if one is not None and one.detail)
    return next((detail for detail, _ in details.most_common(1)), "")


def _ended_badly(observation: Observation) -> bool:
    return observation.phase is Phase.ENDED and (observation.exit_code != 0 or bool(observation.word))


def _held(trial: Trial) -> Handle:
    if trial.handle is None:
        message = f"{trial.id} is {trial.state} without a handle"
        raise AssertionError(message)
    return trial.handle
