"""From what is known of a trial to its rows: the transitions that its driver must have written.

All attempts but the last are told to their ends. The last one is left to the driver as it is: in the queue
when the backend has a run of it, in doubt when nobody knows whether it was submitted. Only where MLflow was
told how the trial ended is that its end, whatever the backend may have forgotten since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflows import ids
from airflows.backends.base import Observation
from airflows.checkpoints import step_in
from airflows.engine.recall import End, Known, Trace
from airflows.failures import Verdict, classify
from airflows.ledger import Change, SweepRow
from airflows.planner import CANCELLED
from airflows.relief import relief_words
from airflows.retry import NO_PROGRESS, Progress, RetryPolicy, after_failure
from airflows.trial import Event, EventKind, Reason, State, Trial, advance

REBUILT = "rebuilt from what the backend and MLflow know"
_KILLED = "KILLED"
"""A backend's word for a run that we asked to end."""
_NOTHING_KNOWN = "Nothing is known of how it ended; another attempt followed."


@dataclass(frozen=True, slots=True)
class Teller:
    """What is needed to tell the stories of a sweep's trials.

    Attributes:
        row: the sweep.
        policy: says for a trial whether its failed attempts are followed by others.
        tail: the last lines of a run that failed.
        relief: the values that a trial's attempts have from now on in place of those searched.
        ran_out_of_memory: is told of trials that did.
        accelerators: of a trial's next attempt, in a place.
        ended_by_us: why a run was probably asked to end, where MLflow was not told.
        places: that attempts may have been in; of several the first where nobody knows which.
    """

    row: SweepRow
    policy: Callable[[int], RetryPolicy]
    tail: Callable[[int, Trace], list[str]]
    relief: Callable[[int], Mapping[str, Any]]
    ran_out_of_memory: Callable[[int], None]
    accelerators: Callable[[int, str], float]
    ended_by_us: Reason = Reason.USER
    places: Sequence[str] = ()

    def place_of(self, trace: Trace) -> str:
        """Return where an attempt was."""
        return trace.place or (self.places[0] if self.places else self.row.backend)

    def tell(self, trial: Trial, known: Known) -> list[Change]:
        """Return the changes that lead from a trial that waits to how it stands."""
        story = _Story(self, trial, known)
        story.tell()
        return story.changes


@dataclass(slots=True)
class _Story:
    teller: Teller
    trial: Trial
    known: Known
    changes: list[Change] = field(default_factory=list)

    def tell(self) -> None:
        known, end = self.known, self.known.end
        last = max(known.last, 0 if known.run_id else -1, -1 if end is None else end.attempt)
        for attempt in range(last):
            self._follow_up(attempt)
        if end is not None and end.attempt == last:
            self._end(end)
        elif last >= 0:
            self._stand(self._trace(last))

    def _trace(self, attempt: int) -> Trace:
        return self.known.traces.get(attempt) or Trace()

    # What may have happened

    def _follow_up(self, attempt: int) -> None:
        """Tell of an attempt that was followed by another."""
        trace = self._trace(attempt)
        self._begin(trace)
        seen = trace.seen if trace.has_ended else None
        if seen is None or (seen.exit_code == 0 and not seen.word):
            facts = {} if seen is None else _facts(seen)
            self._add(EventKind.RETRIED, self._end_time(attempt), Reason.LOST, _NOTHING_KNOWN, facts)
        elif len(self.teller.places) > 1 and seen.exit_code is None and seen.word == CANCELLED:
            self._go(Reason.MOVED, trace)
        elif seen.word.upper() == _KILLED:
            self._go(self.teller.ended_by_us, trace)
        else:
            self._fail(seen, attempt)
        if self.trial.state is not State.PENDING:
            self._add(EventKind.REOPENED, self._end_time(attempt), Reason.RESUMED)

    def _fail(self, seen: Observation, attempt: int) -> None:
        verdict = self._verdict(self._trace(attempt), seen)
        progress = self._progress_before(attempt + 1)
        policy, at = self.teller.policy(self.trial.number), self._end_time(attempt)
        event = after_failure(self.trial, verdict, progress, policy, at)
        self._add(
            event.kind, at, event.reason, event.detail, _facts(seen), {**event.changes, **_run_of(seen)}
        )

    def _stand(self, trace: Trace) -> None:
        """Tell of the last attempt as far as it has come."""
        seen = trace.seen
        if seen is not None and trace.has_ended and seen.word.upper() == _KILLED:
            self._begin(trace)
            self._go(self.teller.ended_by_us, trace)
        elif trace.handle is not None:
            self._claim(trace)
            self._accept(trace)
        elif self.known.is_finished:
            self._begin(trace)
            self._add(EventKind.SUCCEEDED, self._time_of(trace))
        else:
            self._claim(trace)

    def _end(self, end: End) -> None:
        """Tell the end that MLflow was told of."""
        trace = self._trace(end.attempt)
        has_run = trace.handle is not None or end.state is State.SUCCEEDED
        if end.state is State.STOPPED and end.reason is Reason.LIMIT and not has_run:
            # It waited when the sweep was over, and still does.
            return
        if not has_run and end.attempt not in self.known.traces:
            self._end_waiting(end, trace)
        elif end.reason is Reason.INVALID and not has_run:
            self._claim(trace)
            self._add(EventKind.REJECTED, self._time_of(trace), end.reason, end.message)
        else:
            self._begin(trace)
            self._end_run(end, trace)

    def _end_waiting(self, end: End, trace: Trace) -> None:
        """Tell the end of a trial that waited for an attempt, as far as anybody knows."""
        at = self._time_of(trace)
        if end.state is not State.FAILED:
            self._add(EventKind.STOP_ASKED, at, end.reason)
        elif end.attempt:
            self._add(EventKind.FAILED, at, end.reason, end.message)
        else:
            self._begin(trace)
            self._add(EventKind.FAILED, at, end.reason, end.message)

    def _end_run(self, end: End, trace: Trace) -> None:
        at, seen = self._time_of(trace), trace.seen if trace.has_ended else None
        facts = {} if seen is None else _facts(seen)
        changes = {"run_id": self.known.run_id} | ({} if seen is None else _run_of(seen))
        if end.state is State.SUCCEEDED:
            self._add(EventKind.SUCCEEDED, at, facts=facts, changes=changes)
        elif end.state is State.FAILED:
            if seen is not None and seen.exit_code != 0:
                changes = {**changes, "signature": self._verdict(trace, seen).signature}
            self._add(EventKind.FAILED, at, end.reason, end.message, facts, changes)
        else:
            self._go(end.reason, trace)

    # Steps

    def _begin(self, trace: Trace) -> None:
        """Tell of an attempt up to where it runs, if it is known to have run."""
        self._claim(trace)
        self._accept(trace)
        if trace.seen is not None and trace.seen.started_at is not None:
            facts = {**_facts(trace.seen), "started_at": trace.seen.started_at}
            facts.pop("exit_code", None)
            self._add(EventKind.STARTED, trace.seen.started_at, facts=facts)

    def _claim(self, trace: Trace) -> None:
        detail = relief_words(self.teller.relief(self.trial.number)) or REBUILT
        changes = {"backend": self.teller.place_of(trace)}
        if trace.handle is None or not self.known.is_service_s:
            changes["run_id"] = self.known.run_id or self.trial.run_id
        self._add(EventKind.CLAIMED, self._claim_time(trace), detail=detail, changes=changes)

    def _accept(self, trace: Trace) -> None:
        facts = {} if trace.handle is None else {"handle": trace.handle}
        self._add(EventKind.ACCEPTED, self._claim_time(trace), facts=facts)

    def _go(self, reason: Reason, trace: Trace) -> None:
        at = self._time_of(trace)
        self._add(EventKind.STOP_ASKED, at, reason)
        seen = trace.seen
        changes = {} if seen is None else _run_of(seen)
        self._add(EventKind.GONE, at, reason, facts={} if seen is None else _facts(seen), changes=changes)

    def _add(
        self,
        kind: EventKind,
        at: float,
        reason: Reason = Reason.NONE,
        detail: str = "",
        facts: Mapping[str, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        before = self.trial
        event = Event(kind, at, reason, detail, facts or {}, changes or {})
        self.trial = advance(before, event)
        token = ids.token(ids.SweepId(before.sweep), before.number, before.attempt)
        is_claim = kind is EventKind.CLAIMED
        accelerators = self.teller.accelerators(before.number, self.trial.backend) if is_claim else 1
        self.changes.append(Change(before, self.trial, event, token, self._code(before), accelerators))
        if reason is Reason.OUT_OF_MEMORY:
            self.teller.ran_out_of_memory(before.number)

    # What is read off

    def _code(self, trial: Trial) -> str:
        own, usual = self._trace(trial.attempt).code, self.teller.row.code
        return usual if usual.startswith(own) else own

    def _verdict(self, trace: Trace, seen: Observation) -> Verdict:
        return classify(seen, self.teller.tail(self.trial.number, trace))

    def _progress_before(self, attempt: int) -> Progress:
        """Return how far the trial was when an attempt began, by the checkpoint that it began with."""
        seen = self._trace(attempt).seen
        if seen is None or not seen.resumed_from:
            return NO_PROGRESS
        parts = Path(seen.resumed_from).parts
        inner = parts.index(self.trial.sweep) + 2 if self.trial.sweep in parts else len(parts) - 1
        return Progress(seen.resumed_from, step_in(Path(*parts[inner:])))

    def _claim_time(self, trace: Trace) -> float:
        seen = None if trace.seen is None else trace.seen.started_at
        known = [at for at in (trace.written_at, seen) if at is not None]
        return min(known, default=self.teller.row.created_at)

    def _time_of(self, trace: Trace) -> float:
        """Return when a run ended, else when it began, as far as anybody knows."""
        if trace.seen is not None and trace.seen.ended_at is not None:
            return trace.seen.ended_at
        return self._claim_time(trace)

    def _end_time(self, attempt: int) -> float:
        """Return when an attempt ended that was followed by another."""
        trace = self._trace(attempt)
        if trace.seen is not None and trace.seen.ended_at is not None:
            return trace.seen.ended_at
        after = self._trace(attempt + 1)
        return self._claim_time(after if after.written_at is not None else trace)


def _facts(seen: Observation) -> dict[str, Any]:
    facts = {
        "host": seen.host or None,
        "resumed_from": seen.resumed_from or None,
        "started_at": seen.started_at,
        "ended_at": seen.ended_at,
        "exit_code": seen.exit_code,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _run_of(seen: Observation) -> dict[str, Any]:
    return {"run_id": seen.mlflow_run_id} if seen.mlflow_run_id else {}
