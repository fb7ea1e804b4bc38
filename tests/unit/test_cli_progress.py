import pytest

from airflows.cli.progress import (
    LOOK_EVERY_S,
    PLAIN_EVERY_S,
    LiveGauge,
    Pace,
    PlainLines,
    Reporter,
    left_text,
    words_for,
)
from airflows.cli.terminal import Session
from airflows.engine.observers import Snapshot
from airflows.errors import LedgerError
from airflows.ledger import Change
from airflows.testing.fake import ManualClock
from airflows.trial import Event, EventKind, Handle, Reason, State, Trial, advance


class Notes(Session):
    """A session that keeps what it would tell."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def note(self, *lines: str) -> None:
        self.lines += lines


def snapshot(ended: int, *, at: float = 0.0, total: int | None = 10, **fields) -> Snapshot:
    counts = {State.SUCCEEDED: ended, State.RUNNING: 2}
    return Snapshot("lr-7f3a9c", at, total, counts, **({"best": None} | fields))


def failure(number: int, signature: str = "error: N", *, final: bool = True) -> Change:
    trial = Trial(
        "lr-7f3a9c", number, number, 0, State.RUNNING, backend="local", handle=Handle(f"local:{number}")
    )
    kind = EventKind.FAILED if final else EventKind.RETRIED
    event = Event(
        kind, 1.0, Reason.ERROR, "The command exited with an error.", changes={"signature": signature}
    )
    return Change(trial, advance(trial, event), event, "token")


def test_words_say_what_ended_runs_and_is_best():
    words = words_for(snapshot(3, best=(0.5, 7), note="MLflow is away"))
    assert words == "3 of 10 ended, 2 running, best 0.5 (trial 7); MLflow is away"


def test_a_plain_line_comes_on_change_and_not_too_often():
    session, clock = Notes(), ManualClock(0.0)
    lines = PlainLines(session, clock)
    for at, words in [
        (0, "a"),
        (1, "b"),
        (PLAIN_EVERY_S, "b"),
        (PLAIN_EVERY_S * 3, "b"),
        (PLAIN_EVERY_S * 4, "c"),
    ]:
        clock.now = at
        lines.show(snapshot(0), words, "")
    assert session.lines == ["lr-7f3a9c: a", "lr-7f3a9c: b", "lr-7f3a9c: c"]


def test_the_rest_is_estimated_from_the_pace_since_watching_began():
    pace = Pace()
    assert pace.left_s(4, 10, 100.0) is None
    assert pace.left_s(6, 10, 120.0) == pytest.approx(40.0)
    assert pace.left_s(10, 10, 130.0) is None
    assert pace.left_s(6, None, 130.0) is None


def test_how_long_is_left_is_said_only_when_known():
    assert left_text(40.0) == ", about 40s left"
    assert left_text(None) == ""


def test_a_failure_names_trial_backend_handle_reason_and_what_to_do():
    session = Notes()
    Reporter(session).on_changes([failure(3)])
    told = "\n".join(session.lines)
    assert "lr-7f3a9c/3.0 failed (local:3): The command exited with an error." in told
    assert "airflows logs lr-7f3a9c/3 --attempt 0" in told
    assert "airflows resume lr-7f3a9c --failed" in told


def test_a_failure_that_is_retried_does_not_ask_for_a_resume():
    session = Notes()
    Reporter(session).on_changes([failure(3, final=False)])
    told = "\n".join(session.lines)
    assert "to be tried again" in told
    assert "resume" not in told


def test_a_trial_that_is_given_up_while_it_waits_is_not_told_of_again():
    change = failure(3, final=False)
    given_up = Event(EventKind.FAILED, 2.0, Reason.ERROR, "The same; not tried again.")
    session = Notes()
    Reporter(session).on_changes(
        [change, Change(change.after, advance(change.after, given_up), given_up, "token")]
    )
    assert sum("lr-7f3a9c/3" in line and "failed" in line for line in session.lines) == 1


def test_equal_failures_are_told_once_in_full():
    session = Notes()
    Reporter(session).on_changes([failure(0), failure(1)])
    assert sum("next:" in line for line in session.lines) == 1
    assert session.lines[-1] == "lr-7f3a9c/1.0 failed as lr-7f3a9c/0.0 did"


def test_many_failures_do_not_flood_the_screen():
    session = Notes()
    Reporter(session).on_changes([failure(number, f"error: {number}") for number in range(100)])
    assert len(session.lines) < 20
    assert "only counted" in session.lines[-1]


def test_changes_are_handed_on():
    seen = []
    Reporter(Notes(), on_attempt=seen.append).on_changes([failure(0)])
    assert len(seen) == 1


class Display:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.shown, self.remarks = [], []

    def show(self, scene):
        self.shown.append(scene)

    def note(self, *lines: str) -> None: ...

    def remark(self, text: str) -> None:
        self.remarks.append(text)

    def close(self) -> None: ...


class Looking:
    """An onlooker whose looks take a while, and may fail."""

    def __init__(self, clock: ManualClock, takes_s: float = 0.0) -> None:
        self.clock, self.takes_s, self.times, self.fails = clock, takes_s, [], False

    def look(self, note: str = ""):
        self.times.append(self.clock.now)
        self.clock.now += self.takes_s
        if self.fails:
            message = "the ledger does not answer"
            raise LedgerError(message)
        return note

    def close(self) -> None: ...


def live(takes_s: float = 0.0):
    clock = ManualClock(0.0)
    looking, display = Looking(clock, takes_s), Display()
    return LiveGauge(looking, display, clock), looking, display


def test_a_driver_looks_seldom_however_often_it_ticks():
    gauge, looking, _ = live()
    for tick in range(1000):
        looking.clock.now = tick / 100
        gauge.show(snapshot(0), "", "")
    assert len(looking.times) == pytest.approx(10 / LOOK_EVERY_S, abs=1)


def test_slow_looks_take_a_twentieth_of_the_drivers_time():
    gauge, looking, _ = live(takes_s=0.4)
    while looking.clock.now < 80.0:
        looking.clock.now += 0.1
        gauge.show(snapshot(0), "", "")
    assert len(looking.times) * 0.4 <= 80.0 / 19


def test_a_look_that_fails_does_not_end_the_drive():
    gauge, looking, display = live()
    looking.fails = True
    gauge.show(snapshot(0), "", "")
    assert display.shown == []
    looking.fails, looking.clock.now = False, 1.0
    gauge.show(snapshot(0, note="waits"), "", "")
    assert display.shown == ["waits"]


def test_a_remark_goes_above_the_view_where_there_is_one():
    gauge, _, display = live()
    assert Reporter(Notes(), gauge=gauge).remark("letting go") is True
    assert display.remarks == ["letting go"]
    assert Reporter(Notes()).remark("letting go") is False
