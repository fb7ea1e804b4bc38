"""Closing final trials: one reading each, MLflow's hiccups waited out, and nothing said of what nobody asked for."""

import math
from dataclasses import replace

import pytest

from airflows.engine.scoring import PATIENCE_S, Scoring
from airflows.errors import TrackingUnavailableError
from airflows.objective import Objective
from airflows.testing.tracker import FakeTracker
from airflows.tracking import Reading
from airflows.trial import Reason, State, Trial

NOW = 1_700_000_000.0
LOSS = Objective(metric="loss", goal="minimize")
LEASE = object()


class Written:
    """As much of a ledger as scoring needs."""

    def __init__(self):
        self.closings = []

    def apply(self, lease, changes, closings):
        assert (lease, changes) == (LEASE, [])
        self.closings += closings


@pytest.fixture
def ledger():
    return Written()


@pytest.fixture
def tracker():
    runs = {f"run-{number}": number for number in range(9)}
    return FakeTracker(values={0: 3.0, 1: 1.0, 2: 2.0}, numbers=runs)


@pytest.fixture
def scoring(tracker):
    return Scoring(tracker, [LOSS], lambda _trial: ["", "last words"])


def ended(number, state=State.SUCCEEDED, **fields):
    return replace(Trial("s-1", number, number, 0, state, run_id=f"run-{number}"), **fields)


def numbers(ledger):
    return [closing.number for closing in ledger.closings]


def test_what_ended_is_read_and_closed_once(scoring, tracker, ledger):
    scoring.take_over([ended(0), ended(2)])
    scoring.work(ledger, LEASE, NOW, idle=False)
    scoring.work(ledger, LEASE, NOW + 9, idle=False)

    assert [(closing.number, closing.value) for closing in ledger.closings] == [(0, 3.0), (2, 2.0)]
    assert (scoring.is_open, scoring.best) == (False, (2.0, 2))
    assert tracker.asked == {"read": 1, "close": 1}


def test_what_is_closed_already_is_left_alone(scoring, ledger):
    scoring.add(ended(0, closed=True))
    scoring.work(ledger, LEASE, NOW, idle=True)

    assert (scoring.is_open, ledger.closings) == (False, [])


def test_mlflow_is_asked_twice_a_second_at_most(scoring, tracker, ledger):
    for tenth in range(20):
        scoring.add(ended(tenth % 9))
        scoring.work(ledger, LEASE, NOW + tenth / 10, idle=False)

    assert tracker.asked["read"] == 4


def test_after_a_hiccup_it_is_asked_again_while_other_trials_run(scoring, tracker, ledger):
    tracker.away = True
    scoring.add(ended(0))
    scoring.work(ledger, LEASE, NOW, idle=False)
    assert "Asking again in 1 s" in scoring.note
    assert scoring.due_in(NOW) == 1

    tracker.away = False
    scoring.work(ledger, LEASE, NOW + 0.9, idle=False)
    assert ledger.closings == []
    scoring.work(ledger, LEASE, NOW + 1, idle=False)
    assert (numbers(ledger), scoring.note) == ([0], "")


def test_a_driver_is_never_told_to_ask_at_once_what_will_not_be_asked(scoring, tracker, ledger):
    """Else it spins: whenever `due_in` is 0, `work` asks."""
    tracker.away = True
    scoring.add(ended(0))
    now = NOW
    for _ in range(50):
        asked = tracker.asked.total()
        scoring.work(ledger, LEASE, now, idle=False)
        assert tracker.asked.total() == asked + 1
        assert scoring.due_in(now) >= 1
        now += scoring.due_in(now)


def test_an_mlflow_that_stays_away_is_asked_ever_more_seldom(scoring, tracker, ledger):
    tracker.away = True
    scoring.add(ended(0))
    for second in range(3600):
        scoring.work(ledger, LEASE, NOW + second, idle=False)

    assert 100 < tracker.asked["read"] < 130
    assert ledger.closings == []


def test_patience_ends_only_when_nothing_else_is_left_to_do(scoring, tracker, ledger):
    tracker.away = True
    scoring.add(ended(0))
    for second in range(0, 1000, 30):
        scoring.work(ledger, LEASE, NOW + second, idle=False)
    with pytest.raises(TrackingUnavailableError):
        scoring.work(ledger, LEASE, NOW + 1020, idle=True)


def test_patience_begins_anew_after_an_answer(scoring, tracker, ledger):
    tracker.away = True
    scoring.add(ended(0))
    scoring.work(ledger, LEASE, NOW, idle=True)
    tracker.away = False
    scoring.work(ledger, LEASE, NOW + PATIENCE_S, idle=True)
    tracker.away = True
    scoring.add(ended(1))
    scoring.work(ledger, LEASE, NOW + PATIENCE_S + 60, idle=True)

    assert scoring.is_open
    assert numbers(ledger) == [0]


def test_a_success_without_the_metric_says_so_with_its_last_words(scoring, ledger):
    scoring.add(ended(5))
    scoring.work(ledger, LEASE, NOW, idle=False)

    (closing,) = ledger.closings
    assert closing.reason is Reason.NO_METRIC
    assert closing.message == "loss was not logged; logged: nothing. Last lines: last words"


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED])
def test_what_did_not_succeed_is_closed_without_being_read(scoring, tracker, ledger, state):
    scoring.add(ended(0, state))
    scoring.work(ledger, LEASE, NOW, idle=False)

    assert [(closing.number, closing.value, closing.reason) for closing in ledger.closings] == [
        (0, None, None)
    ]
    assert (tracker.asked["read"], tracker.runs) == (0, {"run-0": state})


def test_a_trial_without_a_run_is_closed_without_asking_for_it(scoring, tracker, ledger):
    scoring.add(ended(0, State.CANCELLED, run_id=""))
    scoring.work(ledger, LEASE, NOW, idle=False)

    assert numbers(ledger) == [0]
    assert tracker.runs == {}


# How far a trial is


def test_the_last_step_of_a_trial_is_that_of_its_metric(scoring):
    assert scoring.latest_step(ended(0, State.RUNNING)) == 0
    assert scoring.latest_step(ended(5, State.RUNNING)) == -1
    assert scoring.latest_step(ended(0, State.RUNNING, run_id="")) == -1


def test_an_mlflow_that_is_silent_knows_of_no_step(scoring, tracker):
    tracker.away = True
    assert scoring.latest_step(ended(0, State.RUNNING)) == -1


def test_without_an_objective_nobody_is_asked(tracker):
    assert Scoring(tracker, [], lambda _trial: []).latest_step(ended(0)) == -1
    assert not tracker.asked


def test_a_run_that_had_to_be_changed_says_so_in_mlflow(tracker, ledger, monkeypatch):
    closed = []
    monkeypatch.setattr(tracker, "close", closed.extend)
    scoring = Scoring(tracker, [LOSS], lambda _trial: [], lambda trial: f"changed {trial.number}")
    scoring.take_over([ended(0), ended(1, State.FAILED, message="no"), ended(2, State.CANCELLED)])
    scoring.work(ledger, LEASE, NOW, idle=False)
    assert [run.message for run in closed] == ["changed 0", "no", ""]


LATENCY = Objective(metric="latency", goal="minimize", constraints=["memory <= 8"])
FRONT = {
    0: {"loss": 3.0, "latency": 7.0, "memory": 4.0},
    1: {"loss": 1.0, "latency": math.nan},
    2: {"loss": 2.0, "memory": 9.0},
    3: {"latency": 5.0},
}


class Measuring(FakeTracker):
    """A tracker whose runs logged several metrics."""

    def _reading(self, run_id, metric):
        metrics = FRONT[self.numbers[run_id]]
        return Reading(metrics.get(metric), 4, "last", metrics)


@pytest.fixture
def closed(ledger):
    """What is written of trials with two objectives, by number."""
    scoring = Scoring(
        Measuring(numbers={f"run-{number}": number for number in range(9)}),
        [LOSS, LATENCY],
        lambda _trial: [],
    )
    scoring.take_over([ended(number) for number in FRONT])
    scoring.work(ledger, LEASE, NOW, idle=False)
    assert scoring.best is None, "no single one of several objectives is the best"
    return {closing.number: closing for closing in ledger.closings}


def test_further_objectives_are_kept_beside_the_value_of_the_first_and_the_constraints(closed):
    assert (closed[0].value, closed[0].value_step) == (3.0, 4)
    assert list(closed[0].scores) == [("memory", -1, 4.0), ("latency", -2, 7.0)]


def test_an_unsound_value_of_a_further_objective_is_kept_as_it_is(closed):
    ((metric, place, value),) = closed[1].scores
    assert (metric, place, math.isnan(value)) == ("latency", -2, True)
    assert (closed[1].value, closed[1].reason) == (1.0, None)


def test_the_objective_that_was_not_logged_is_named(closed):
    assert (closed[2].value, closed[2].reason) == (2.0, Reason.NO_METRIC)
    assert closed[2].message.startswith("latency was not logged; logged: 'loss', 'memory'.")
    assert (closed[3].value, closed[3].reason) == (None, Reason.NO_METRIC)
    assert closed[3].message.startswith("loss was not logged; logged: 'latency'.")
    assert list(closed[3].scores) == [("latency", -2, 5.0)]
