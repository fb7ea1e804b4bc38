"""What the launch directories, the backend and MLflow still know of a sweep. Asks, and writes nothing.

Attempts are claimed in the order of the trials' numbers. So behind the highest one that is known, only a
window of further tokens is asked for: what another machine submitted has no launch directory here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflows import ids
from airflows.backends.base import Backend, Observation, Phase
from airflows.backends.places import Place
from airflows.engine.site import Site
from airflows.errors import ConflictError
from airflows.ids import SweepId, Token
from airflows.launch import PLACE_FILE
from airflows.ledger import SweepRow
from airflows.tracking import FoundRun
from airflows.trial import FINAL, Handle, Reason, State

_WINDOW = 500
# A failed run's files may be seen late: Slurm's end of a run is sure after ten seconds.
_LOOKS = 15
_GOING = frozenset({"", "RUNNING", "SCHEDULED"})


@dataclass(slots=True)
class Trace:
    """What is known of an attempt.

    Attributes:
        written_at: when its launch directory was written, None when there is none here.
        code: digest of the code that it ran, or how that begins; empty when it cannot be told.
        handle: of its run, None when the backend knows none.
        seen: its run as the backend sees it, None when it does not say.
        place: where it was, empty when it cannot be told.
    """

    written_at: float | None = None
    code: str = ""
    handle: Handle | None = None
    seen: Observation | None = None
    place: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the backend says that its run is over."""
        return self.seen is not None and self.seen.phase is Phase.ENDED


@dataclass(frozen=True, slots=True)
class End:
    """How a trial ended, as MLflow was told.

    Attributes:
        state: a final one.
        reason: why.
        attempt: the one that it was at.
        message: words for people.
    """

    state: State
    reason: Reason
    attempt: int
    message: str


@dataclass(slots=True)
class Known:
    """What is known of a trial.

    Attributes:
        traces: by attempt.
        run_id: its MLflow run; of several, as a service makes them, the newest attempt's.
        place: its point and replicate, as MLflow has them; None when it does not say.
        is_service_s: a service made that run, so that every attempt has one of its own.
        is_finished: MLflow says that such a run ended well.
        end: how the trial ended, None when MLflow does not say.
    """

    traces: dict[int, Trace] = field(default_factory=dict)
    run_id: str = ""
    place: tuple[int, int] | None = None
    is_service_s: bool = False
    is_finished: bool = False
    end: End | None = None

    @property
    def last(self) -> int:
        """The highest attempt that anybody but MLflow's last word knows; -1 for none."""
        return max(self.traces, default=-1)


def recall(site: Site, row: SweepRow, most: int | None) -> dict[int, Known]:
    """Return what is known of a sweep's trials by number.

    Args:
        site: what the sweep works with.
        row: the sweep; with its MLflow ids, as far as they are known.
        most: how many trials it has at most, None when nobody can know.

    Raises:
        BackendUnavailableError: the backend does not answer.
        TrackingUnavailableError: MLflow does not answer.
        ConflictError: MLflow has a trial at another place of the sweep than the file.
    """
    known: dict[int, Known] = {}
    for root in site.roots:
        _add_launched(known, root / "runs" / row.id)
    if row.experiment_id and not site.tracker.is_off:
        site.attach_tracking(row)
        _add_runs(known, site.tracker.known_trials(), is_service=site.service is not None)
    _find(site.places, SweepId(row.id), known, most)
    _poll(site.backend, known)
    return known


def _add_launched(known: dict[int, Known], directory: Path) -> None:
    """Add the trials and attempts that have a launch directory; of several of an attempt the last counts."""
    for number, trial in _numbered(directory, ""):
        for attempt, launch_dir in _numbered(trial, "a"):
            trace = Trace(_written_at(launch_dir), _code_in(launch_dir), place=_place_in(launch_dir))
            traces = known.setdefault(number, Known()).traces
            if attempt not in traces or (traces[attempt].written_at or 0.0) < (trace.written_at or 0.0):
                traces[attempt] = trace


def _numbered(directory: Path, prefix: str) -> Iterator[tuple[int, Path]]:
    try:
        entries = list(directory.iterdir())
    except OSError:
        return
    for entry in entries:
        number = entry.name.removeprefix(prefix)
        if entry.name.startswith(prefix) and number.isdecimal() and entry.is_dir():
            yield int(number), entry


def _written_at(launch_dir: Path) -> float | None:
    try:
        return (launch_dir / "training_config.yaml").stat().st_mtime
    except OSError:
        return None


def _place_in(launch_dir: Path) -> str:
    """Return the place that an attempt's launch directory was written for; empty where there was only one."""
    try:
        return (launch_dir / PLACE_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _code_in(launch_dir: Path) -> str:
    """Return how the digest of an attempt's own copy of the code begins; empty where it has none."""
    try:
        copies = [path for path in (launch_dir / "code").iterdir() if not path.name.startswith(".")]
        return max(copies, key=lambda path: path.stat().st_mtime).name
    except (OSError, ValueError):
        return ""


# MLflow


def _add_runs(known: dict[int, Known], runs: Sequence[FoundRun], *, is_service: bool) -> None:
    # Of two runs of a trial the one that was ended is its own; the other was made for nothing.
    ordered = sorted(runs, key=lambda run: (run.status in _GOING, run.run_id))
    if is_service:
        ordered = sorted(runs, key=_attempt_of, reverse=True)
    for run in ordered:
        number = run.tags.get("airflows.trial", "")
        trial = known.setdefault(int(number), Known()) if number.isdecimal() else None
        if trial is None or trial.run_id:
            continue
        trial.run_id, trial.end, trial.place = run.run_id, _end_of(run), _place_of(run)
        # Where some places make runs and others do not, a trial has some of each.
        trial.is_service_s = is_service and run.tags.get("mlflow.source.name") != "airflows"
        trial.is_finished = trial.is_service_s and run.status == "FINISHED"
        if trial.is_service_s and trial.end is None:
            trial.traces.setdefault(max(0, _attempt_of(run)), Trace())


def _place_of(run: FoundRun) -> tuple[int, int] | None:
    point, replicate = (run.tags.get(f"airflows.{name}", "") for name in ("point", "replicate"))
    return (int(point), int(replicate)) if point.isdecimal() and replicate.isdecimal() else None


def _attempt_of(run: FoundRun) -> int:
    """Return the attempt that a service's run is of, which has the attempt's token for a name."""
    try:
        return ids.parse_token(run.tags.get("mlflow.runName", ""))[1]
    except ValueError:
        return -1


def _end_of(run: FoundRun) -> End | None:
    tags = run.tags
    state, attempt = tags.get("airflows.state", ""), tags.get("airflows.attempt", "")
    # One that was ended, and taken up again, still has the tags of that end.
    if run.status in _GOING or state not in FINAL or not attempt.isdecimal():
        return None
    reason = tags.get("airflows.reason", "")
    known = Reason(reason) if reason in set(Reason) else Reason.NONE
    return End(State(state), known, int(attempt), tags.get("airflows.message", ""))


def require_same_points(known: Mapping[int, Known], replicates: int, planned: int | None) -> None:
    """Check that trials are, in MLflow, of the points that the file has under their numbers.

    Args:
        known: by number.
        replicates: of each point.
        planned: how many trials the file has; others were added later.

    Raises:
        ConflictError: one is not.
    """
    for number, trial in known.items():
        is_added = planned is not None and number >= planned
        if trial.place is None or is_added or trial.place == divmod(number, replicates):
            continue
        point = number // replicates
        message = f"trial {number} is of point {trial.place[0]} in MLflow, and of point {point} in the file."
        raise ConflictError(message, hint="Give the file that the sweep ran with.")


# The backend


def _find(places: Sequence[Place], sweep: SweepId, known: dict[int, Known], most: int | None) -> None:
    """Ask for the runs of all attempts that may have some, until nothing new turns up."""
    asked: set[Token] = set()
    while wanted := [token for token in _candidates(sweep, known, most) if token not in asked]:
        asked |= set(wanted)
        for place in places:
            for token, handle in place.backend.find(wanted).items():
                number, attempt = ids.parse_token(token)
                trace = known.setdefault(number, Known()).traces.setdefault(attempt, Trace())
                trace.handle, trace.place = handle, place.name


def _candidates(sweep: SweepId, known: dict[int, Known], most: int | None) -> Iterator[Token]:
    stop = max(known, default=-1) + 1 + _WINDOW
    nothing = Known()
    for number in range(stop if most is None else max(min(stop, most), max(known, default=-1) + 1)):
        for attempt in range(known.get(number, nothing).last + 2):
            yield ids.token(sweep, number, attempt)


def _poll(backend: Backend, known: dict[int, Known]) -> None:
    """Look at all runs once, and at those that were followed by another attempt until their end is told."""
    traces = {trace.handle: trace for trial in known.values() for trace in trial.traces.values()}
    _look(backend, {handle: trace for handle, trace in traces.items() if handle is not None})
    followed = {
        trace.handle: trace
        for trial in known.values()
        for attempt, trace in trial.traces.items()
        if attempt < trial.last and trace.handle is not None
    }
    for _ in range(_LOOKS):
        followed = {handle: trace for handle, trace in followed.items() if not trace.has_ended}
        if not followed:
            return
        backend.wait(1.0)
        _look(backend, followed)


def _look(backend: Backend, traces: dict[Handle, Trace]) -> None:
    if traces:
        for handle, seen in backend.poll(list(traces)).items():
            traces[handle].seen = seen
