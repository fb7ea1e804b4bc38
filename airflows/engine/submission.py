"""From a claimed trial to a run: MLflow run, launch directory, one call to the backend, and what it said."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflows import ids
from airflows.backends.base import Backend, Job
from airflows.backends.places import Place, place_named, places_of
from airflows.errors import (
    AirflowsError,
    BackendUnavailableError,
    SpecError,
    SubmitAmbiguousError,
    SubmitError,
    SubmitRejectedError,
    SubmitUnreachedError,
    SubmitUnsentError,
    TrackingUnavailableError,
)
from airflows.failures import normalise
from airflows.hosts import HostRecord
from airflows.ids import canonical_json
from airflows.launch import Launcher
from airflows.planning import PASSED_ON, Refusals
from airflows.tracking import Tracker, TrackingRefusedError, TrialRun
from airflows.train import ACCELERATORS, decode, effective
from airflows.trial import Event, EventKind, Handle, Reason, Trial

_NOTHING: Mapping[str, Any] = {}
_UNSENT_WAIT_S = 1.0
_LONGEST_UNSENT_WAIT_S = 60.0


@dataclass(slots=True)
class Outcome:
    """What became of a batch.

    Attributes:
        events: a transition for each trial about which something is known; ambiguous ones have none.
        note: what people should know, empty when all is well.
        waits: nothing can be submitted now, because MLflow does not answer.
        error: what must end the driver once the events are written, such as a full disk.
    """

    events: list[tuple[Trial, Event]] = field(default_factory=list)
    note: str = ""
    waits: bool = False
    error: AirflowsError | None = None


class Submission:
    """Submits the trials of one sweep.

    Attributes:
        hosts: what became of attempts on each host; the bad ones are named in every further job.
        pack: so many trials share what one would have.
        refused: places that let nothing through since when, by name.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        open_launcher: Callable[[Place], Launcher],
        tracker: Tracker,
        backend: Backend,
        clock: Callable[[], float],
        relief: Mapping[str, Any] = _NOTHING,
    ) -> None:
        self._base = base
        self._relief = relief
        self._short_of_memory: set[int] = set()
        self._open_launcher = open_launcher
        self._tracker = tracker
        self._backend = backend
        self._clock = clock
        self._check_lease: Callable[[], None] = lambda: None
        # After a crash an MLflow run may exist that the ledger does not know: these are looked up first.
        self._uncertain: set[int] = set()
        self._times_unsent: Counter[int] = Counter()
        self._places = places_of(backend)
        self._made_there = {p.name: p.own.capabilities.makes_mlflow_run for p in self._places}
        self._launchers: dict[str, Launcher] = {}
        self._adopted: set[str] = set()
        self.hosts = HostRecord()
        self.pack = 1
        self.refused: dict[str, Refusals] = {}
        self._unreached_since: dict[str, float] = {}
        self._unreached: dict[str, str] = {}

    def _launcher(self, place: Place) -> Launcher:
        """Return what writes launch directories there, opened when it is needed: cancelling needs none."""
        if place.name not in self._launchers:
            self._launchers[place.name] = self._open_launcher(place)
        return self._launchers[place.name]

    def _place(self, name: str) -> Place:
        return self._places[0] if len(self._places) == 1 else place_named(self._backend, name)

    def _makes_run(self, trial: Trial) -> bool:
        """Whether the trial's MLflow run is made here, and not by the service that the attempt runs on."""
        return not self._made_there[self._place(trial.backend).name]

    def avoided_at(self, place: str) -> list[str]:
        """Return the hosts of a place that further attempts should not run on."""
        is_one = len(self._places) == 1
        return [each.host for each in self.hosts.avoided if is_one or self.hosts.is_of(each.host, place)]

    def fence(self, check_lease: Callable[[], None]) -> None:
        """Take what is called before the backend is: it raises when another driver has the sweep."""
        self._check_lease = check_lease

    def doubt(self, trials: Sequence[Trial]) -> None:
        """Remember trials whose MLflow run may have been made by a driver that died."""
        self._uncertain |= {trial.number for trial in trials if not trial.run_id}

    def ran_out_of_memory(self, numbers: Iterable[int]) -> None:
        """Remember trials of which an attempt ran out of memory: further ones get the relief."""
        self._short_of_memory |= set(numbers)

    def relief(self, number: int) -> Mapping[str, Any]:
        """Return the values that the trial's attempts have from now on in place of those searched."""
        return self._relief if number in self._short_of_memory else _NOTHING

    def would_relieve(self, number: int, overrides: Mapping[str, Any]) -> bool:
        """Whether another attempt would be another run, should this one have run out of memory."""
        if not self._relief or number in self._short_of_memory:
            return False
        relieved = {**overrides, **self._relief}
        return canonical_json(effective(self._base, relieved)) != canonical_json(
            effective(self._base, overrides)
        )

    def accelerators(self, overrides: Mapping[str, Any], place: str) -> float:
        """Return the accelerators of a trial in a place, over all its nodes; of a packed one its share."""
        compute = self._compute(overrides, place)
        count = int(compute.get("num_accelerators", 1))
        return count if self.pack == 1 else count / self.pack

    def nodes(self, overrides: Mapping[str, Any], place: str) -> int:
        """Return the nodes of a trial in a place."""
        compute = self._compute(overrides, place)
        each = ACCELERATORS.get(compute.get("accelerator_type", ""), 1)
        return max(1, int(compute.get("num_accelerators", 1)) // each)

    def _compute(self, overrides: Mapping[str, Any], place: str) -> Mapping[str, Any]:
        own = {key: value for key, value in overrides.items() if key.startswith("compute")}
        found: Mapping[str, Any] = effective(self._base, own | self._of_place(place)).get("compute", {})
        return found

    def _of_place(self, name: str) -> dict[str, Any]:
        """Return what overrides a trial in a place."""
        return {f"compute.{key}": value for key, value in self._place(name).compute.items()}

    def checkpoints(self, number: int) -> tuple[str, str]:
        """Return (directory, pattern) of a trial's checkpoints, the same in all places."""
        return self._launcher(self._places[0]).checkpoints(number)

    def submit(
        self,
        trials: Sequence[Trial],
        overrides: Mapping[int, Mapping[str, Any]],
        now: float,
        throttle: int = 0,
    ) -> Outcome:
        """Submit claimed trials as one batch, of which `throttle` may run at once (0 for all).

        Whatever fails before the backend is asked leaves its trials UNSENT, so nothing is ever in doubt
        that need not be.
        """
        outcome = Outcome()
        try:
            # The program of an earlier attempt may have ended the run.
            again = [trial.run_id for trial in trials if trial.run_id and self._makes_run(trial)]
            if again:
                self._tracker.reopen(again)
            runs = self.runs(trials, overrides)
        except TrackingUnavailableError as exc:
            outcome = self.hold_back(trials, str(exc))
            outcome.note, outcome.waits = f"{exc} Submitting waits for it.", True
            return outcome
        except AirflowsError as exc:
            outcome = self.hold_back(trials, str(exc))
            outcome.error = exc
            return outcome
        jobs = self._make_jobs(trials, overrides, runs, now, outcome)
        if jobs and outcome.error is None:
            self._check_lease()
            avoid = {place.name: tuple(self.avoided_at(place.name)) for place in self._places}
            sent = [
                (t, replace(job, throttle=throttle, avoid=avoid[self._place(t.backend).name], pack=self.pack))
                for t, job in jobs
            ]
            self._hand_over(sent, runs, outcome)
        elif jobs:
            outcome.events += [(t, self._unsent(t, now, "", runs.get(t.number, ""))) for t, _ in jobs]
        return outcome

    def hold_back(self, trials: Sequence[Trial], why: str) -> Outcome:
        """Return claimed trials to where they were, unsent."""
        now = self._clock()
        return Outcome([(trial, self._unsent(trial, now, why)) for trial in trials])

    def runs(self, trials: Sequence[Trial], overrides: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
        """Return the MLflow run of each trial by number, after making those that are missing.

        Raises:
            TrackingUnavailableError: MLflow does not answer; a later call finds what this one made.
        """
        runs = {trial.number: trial.run_id for trial in trials}
        missing = [trial for trial in trials if not trial.run_id and self._makes_run(trial)]
        if not missing:
            return runs
        doubtful = frozenset(self._uncertain)
        for uncertain in (True, False):
            wanted = [t for t in missing if (t.number in doubtful) is uncertain]
            if wanted:
                made = [self._trial_run(t, overrides[t.number]) for t in wanted]
                # Without an answer nobody knows whether they were made.
                self._uncertain |= {trial.number for trial in wanted}
                runs |= self._tracker.create_runs(made, uncertain=uncertain)
        self._uncertain -= {trial.number for trial in missing}
        return runs

    def adopt(self, trial: Trial, run_id: str, overrides: Mapping[str, Any]) -> None:
        """Make a run that the backend's service made for a trial known as its own; once.

        Raises:
            TrackingUnavailableError: MLflow does not answer; it is done at the next sight of the run.
        """
        if not run_id or run_id in self._adopted or self._makes_run(trial):
            return
        earlier = trial.run_id if trial.run_id != run_id else ""
        with contextlib.suppress(TrackingRefusedError):
            self._tracker.adopt(run_id, self._trial_run(trial, overrides), earlier=earlier)
        self._adopted.add(run_id)

    def _trial_run(self, trial: Trial, overrides: Mapping[str, Any]) -> TrialRun:
        name = ids.token(ids.SweepId(trial.sweep), trial.number, trial.attempt)
        return TrialRun(
            number=trial.number,
            name=name,
            overrides=overrides,
            parameters=effective(self._base, overrides).get("parameters") or {},
            point=trial.point,
            replicate=trial.replicate,
        )

    def _make_jobs(
        self,
        trials: Sequence[Trial],
        overrides: Mapping[int, Mapping[str, Any]],
        runs: Mapping[int, str],
        now: float,
        outcome: Outcome,
    ) -> list[tuple[Trial, Job]]:
        jobs: list[tuple[Trial, Job]] = []
        for trial in trials:
            run_id = runs.get(trial.number, "")
            if outcome.error is not None:
                outcome.events.append((trial, self._unsent(trial, now, "", run_id)))
                continue
            try:
                place = self._place(trial.backend)
                here = self._of_place(place.name)
                values = {**overrides[trial.number], **self.relief(trial.number), **here}
                tree = effective(self._base, values)
                if not all(key.startswith("parameters.") for key in values):
                    decode(tree)
                job = self._launcher(place).job(trial, tree, run_id)
                jobs.append((trial, job if len(self._places) == 1 else replace(job, place=place.name)))
            except SpecError as exc:
                outcome.events.append((trial, _rejected(now, str(exc), run_id)))
            except AirflowsError as exc:
                outcome.error = exc
                outcome.events.append((trial, self._unsent(trial, now, str(exc), run_id)))
        return jobs

    def _hand_over(
        self, jobs: Sequence[tuple[Trial, Job]], runs: Mapping[int, str], outcome: Outcome
    ) -> None:
        try:
            answers = self._backend.submit([job for _, job in jobs])
        except BackendUnavailableError as exc:
            answers = [SubmitAmbiguousError(str(exc))] * len(jobs)
        # An accepted run may have started any time until now, not just since the tick began.
        answered_at = self._clock()
        for (trial, _), answer in zip(jobs, answers, strict=True):
            self._note_answer(trial.backend, answer, answered_at)
            event = self._answered(trial, answer, runs.get(trial.number, ""), answered_at)
            outcome.events.append((trial, event))
            if isinstance(answer, SubmitAmbiguousError | SubmitUnsentError):
                outcome.note = str(answer)

    def _note_answer(self, place: str, answer: Handle | SubmitError, now: float) -> None:
        """Remember which places let nothing through; a job refused for good says nothing of others."""
        if len(self._places) == 1 or isinstance(answer, SubmitRejectedError):
            return
        if not isinstance(answer, SubmitError):
            self.refused.pop(place, None)
            self._unreached_since.pop(place, None)
            return
        first = self.refused[place].first_at if place in self.refused else now
        self.refused[place] = Refusals(first, now)
        if isinstance(answer, SubmitUnreachedError):
            self._unreached_since.setdefault(place, now)
            self._unreached[place] = str(answer)

    def take_unreached(self, place: str) -> tuple[float, str] | None:
        """Return (since when, why) a place was not reached when it was last submitted to; once."""
        words = self._unreached.pop(place, None)
        return None if words is None else (self._unreached_since[place], words)

    def _answered(self, trial: Trial, answer: Handle | SubmitError, run_id: str, now: float) -> Event:
        """Return the transition for a backend's answer; an ambiguous one stamps the claim afresh."""
        match answer:
            case SubmitUnsentError():
                event = self._unsent(trial, now, str(answer), run_id)
                # For one place alone nothing follows from who it was that did not let it through.
                if len(self._places) == 1 or isinstance(answer, SubmitUnreachedError):
                    return event
                changes = {name: value for name, value in event.changes.items() if name != "backend"}
                return replace(event, reason=Reason.NO_ROOM, changes=changes)
            case SubmitRejectedError():
                return _rejected(now, str(answer), run_id)
            case SubmitError():
                return Event(EventKind.RECLAIMED, now, detail=str(answer), changes={"run_id": run_id})
            case _:
                self._times_unsent.pop(trial.number, None)
                return Event(EventKind.ACCEPTED, now, facts={"handle": answer}, changes={"run_id": run_id})

    def _unsent(self, trial: Trial, now: float, detail: str, run_id: str = "") -> Event:
        """Back to PENDING; whatever keeps it from being sent is asked again ever more seldom."""
        wait = min(_UNSENT_WAIT_S * 2 ** min(self._times_unsent[trial.number], 10), _LONGEST_UNSENT_WAIT_S)
        self._times_unsent[trial.number] += 1
        changes: dict[str, Any] = {"not_before": now + wait}
        if run_id:
            changes["run_id"] = run_id
        if trial.reason not in PASSED_ON or len(self._places) == 1:
            return Event(EventKind.UNSENT, now, Reason.UNSENT, detail, changes=changes)
        # It stays where it was in the order: behind the place before the one that it was meant for.
        names = [place.name for place in self._places]
        changes["backend"] = names[names.index(self._place(trial.backend).name) - 1]
        return Event(EventKind.UNSENT, now, trial.reason, detail, changes=changes)


def _rejected(now: float, detail: str, run_id: str) -> Event:
    changes = {"run_id": run_id, "signature": normalise(f"{Reason.INVALID}: {detail}")}
    return Event(EventKind.REJECTED, now, Reason.INVALID, detail, changes=changes)
