"""Looking at running trials: what is read, what is stored, what follows, and what a restart makes of it."""

from dataclasses import replace

import pytest

from airflows.engine.judging import Judging
from airflows.engine.metricnames import Unseen
from airflows.ledger import StoredScore
from airflows.scores import MetricPoint
from airflows.stopping.setting import Setting
from airflows.testing.tracker import FakeTracker
from airflows.trial import State, Trial

NOW = 1_700_000_000.0
LEASE = object()
LOSS = {"metric": "loss", "goal": "minimize"}
ASHA = Setting("asha", **LOSS, min_steps=3)


class Store(FakeTracker):
    """MLflow with curves by run id."""

    def __init__(self):
        super().__init__()
        self.curves = {}
        self.names = {}

    def log(self, number, *values, metric="loss", at=NOW):
        at_ms = int(at * 1000)
        self.curves[f"run-{number}"] = [MetricPoint(step, v, at_ms) for step, v in enumerate(values, 1)]
        self.names[f"run-{number}"] = metric

    def latest(self, run_ids):
        self._answer("latest")
        return {r: {self.names[r]: self.curves[r][-1]} for r in run_ids if r in self.curves}

    def curve(self, run_ids, _metric):
        for run_id in run_ids:
            self._answer("curve")
            yield run_id, self.curves[run_id]


class Written:
    """As much of a ledger as judging needs."""

    def __init__(self, trials=()):
        self.rows, self._trials, self.reopened = [], trials, {}

    def add_scores(self, lease, rows):
        assert lease is LEASE
        self.rows += rows

    def curve_scores(self, _sweep, metric):
        return [row for row in self.rows if row.metric == metric]

    def trials(self, _sweep):
        return self._trials

    def reopenings(self, _sweep):
        return self.reopened


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def ledger():
    return Written()


def trial(number, state=State.RUNNING, **fields):
    return replace(Trial("s-1", number, number, 0, state, run_id=f"run-{number}", claimed_at=1.0), **fields)


def judging(store, setting=ASHA, *trials, **fields):
    made = Judging(store, setting, ["loss"], **fields)
    for each in trials:
        made.follow(each)
    return made


def orders(made, planned=9):
    return made.orders(planned=planned, may_start=True)


def test_a_trial_below_the_others_is_to_be_stopped_with_its_numbers(store, ledger):
    store.log(0, 0.5, 0.5, 0.5)
    store.log(1, 0.9, 0.9, 0.9)
    made = judging(store, ASHA, trial(0), trial(1))
    made.look(ledger, LEASE, NOW)

    assert orders(made).stops == {1: "stopped at step 3: 0.9 is above 0.5, the best of 2 trials at that step"}
    assert ledger.rows == [StoredScore(0, "loss", 3, 0.5), StoredScore(1, "loss", 3, 0.9)]


def test_a_history_is_read_only_where_a_rung_was_crossed(store, ledger):
    made = judging(store, ASHA, trial(0))
    for steps in range(1, 12):
        store.log(0, *[0.5] * steps)
        made.look(ledger, LEASE, NOW + steps)

    assert store.asked == {"latest": 11, "curve": 2}
    assert [row.step for row in ledger.rows] == [3, 9]


def test_nobody_is_asked_more_often_than_once_a_second(store, ledger):
    made = judging(store, ASHA, trial(0))
    for tenth in range(20):
        made.look(ledger, LEASE, NOW + tenth / 10)

    assert store.asked == {"latest": 2}


def test_who_starts_anew_decides_the_same_without_asking(store, ledger):
    store.log(0, 0.5, 0.5, 0.5)
    store.log(1, 0.9, 0.9, 0.9)
    first = judging(store, ASHA, trial(0), trial(1))
    first.look(ledger, LEASE, NOW)
    ledger._trials = [trial(0), trial(1)]
    second = Judging(store, ASHA, ["loss"])
    second.take_over(ledger, "s-1")

    assert orders(second) == orders(first)


def test_what_ended_between_two_looks_is_read_once_more(store, ledger):
    made = judging(store, ASHA, trial(0))
    made.look(ledger, LEASE, NOW)
    store.log(0, 0.5, 0.5, 0.5)
    store.log(1, 0.9, 0.9, 0.9)
    made.follow(trial(0, State.SUCCEEDED))
    made.follow(trial(1))
    made.look(ledger, LEASE, NOW + 1)
    made.look(ledger, LEASE, NOW + 2)

    assert set(orders(made).stops) == {1}
    assert [row.number for row in ledger.rows] == [0, 1]


def test_what_failed_before_a_rung_holds_nobody_up(store, ledger):
    store.log(0, 0.1)
    store.log(1, 0.5, 0.5, 0.5)
    store.log(2, 0.9, 0.9, 0.9)
    made = judging(store, ASHA, trial(0), trial(1), trial(2))
    made.look(ledger, LEASE, NOW)
    made.follow(trial(0, State.FAILED))
    made.look(ledger, LEASE, NOW + 1)

    assert set(orders(made).stops) == {2}


def test_mlflow_that_is_away_delays_and_changes_nothing_else(store, ledger):
    store.log(0, float("nan"))
    made = judging(store, Setting("nan", **LOSS), trial(0))
    store.away = True
    made.look(ledger, LEASE, NOW)

    assert "does not answer" in made.note
    assert orders(made).stops == {}

    store.away = False
    made.look(ledger, LEASE, NOW + 5)

    assert made.note == ""
    assert orders(made).stops == {0: "stopped at step 1: loss is NaN"}


def test_what_waits_at_a_rung_is_taken_off_only_with_a_checkpoint(store, ledger):
    setting = replace(ASHA, resume=True)
    store.log(0, 0.5, 0.5, 0.5)
    saved = set()
    made = judging(store, setting, trial(0), saved=lambda trial, _step, _since: trial.number in saved)
    made.look(ledger, LEASE, NOW)

    assert orders(made).pauses == frozenset()
    assert set(orders(made).waits) == {0}

    saved.add(0)
    made.look(ledger, LEASE, NOW + 5)

    assert orders(made).pauses == {0}
    assert orders(made, planned=1).waits == {}


def test_a_checkpoint_is_wanted_for_the_step_of_the_rung_and_looked_for_every_few_seconds(store, ledger):
    store.log(0, 0.5, 0.5, 0.5, 0.5)
    asked = []

    def saved(_trial, step, since):
        asked.append((step, since))
        return len(asked) == 3

    made = judging(store, replace(ASHA, resume=True), trial(0), saved=saved)
    paused = []
    for second in range(12):
        made.look(ledger, LEASE, NOW + second)
        paused.append(bool(orders(made).pauses))

    assert asked == [(3, NOW)] * 3
    assert paused == [False] * 6 + [True] * 6


def test_after_a_restart_only_what_is_saved_from_then_on_counts_where_no_step_is_known(store, ledger):
    ledger.rows, ledger._trials = [StoredScore(0, "loss", 3, 0.5)], [trial(0)]
    asked = []
    made = Judging(
        store, replace(ASHA, resume=True), ["loss"], lambda _trial, *wanted: asked.append(wanted) or False
    )
    made.take_over(ledger, "s-1")
    made.look(ledger, LEASE, NOW + 50)
    orders(made)

    assert asked == [(3, NOW + 50)]


def test_points_that_are_to_come_are_counted_as_points(store, ledger):
    """Of two and of three points one goes on, of four two: so a fourth may let the second go on."""
    setting = replace(ASHA, resume=True, reduction=2)
    made = judging(store, setting, replicates=2)
    for number, value in enumerate((0.1, 0.1, 0.5, 0.5)):
        store.log(number, value, value, value)
        made.follow(trial(number, point=number // 2, replicate=number % 2))
    made.look(ledger, LEASE, NOW)

    assert set(orders(made, planned=4).stops) == {2, 3}
    assert set(orders(made, planned=6).stops) == {2, 3}
    assert orders(made, planned=8).stops == {}


def test_replicates_that_have_not_started_are_waited_for(store, ledger):
    setting = replace(ASHA, min_steps=1, reduction=2)
    made = judging(store, setting, replicates=2)
    trials = [trial(n, State.PENDING, point=n // 2, replicate=n % 2, claimed_at=None) for n in range(4)]
    made.expect(trials)
    for number, value in enumerate((0.3, 0.3, 0.4)):
        store.log(number, value)
        made.follow(replace(trials[number], state=State.RUNNING, claimed_at=1.0))
    made.look(ledger, LEASE, NOW)

    assert orders(made, planned=4).stops == {}

    store.log(3, 0.6)
    made.follow(replace(trials[3], state=State.RUNNING, claimed_at=1.0))
    made.look(ledger, LEASE, NOW + 1)

    assert set(orders(made, planned=4).stops) == {2, 3}


@pytest.mark.parametrize("resume", [False, True])
def test_replicates_that_were_added_are_not_compared(store, ledger, resume):
    setting = replace(ASHA, resume=resume)
    made = judging(store, setting)
    store.log(0, 0.5, 0.5, 0.5)
    store.log(1, 0.4, 0.4, 0.4)
    store.log(2, 0.9, 0.9, 0.9)
    made.follow(trial(0, State.SUCCEEDED))
    made.follow(trial(1, State.SUCCEEDED))
    made.follow(trial(2, point=1, replicate=1))
    made.look(ledger, LEASE, NOW)

    assert (orders(made, planned=3).stops, orders(made, planned=3).waits) == ({}, {})


def test_a_replicate_that_was_added_still_stops_by_itself(store, ledger):
    made = judging(store, ASHA)
    store.log(0, float("nan"))
    made.follow(trial(0, replicate=1))
    made.look(ledger, LEASE, NOW)

    assert orders(made).stops == {0: "stopped at step 1: loss is NaN"}


def test_trials_that_will_never_start_are_not_waited_for(store, ledger):
    store.log(0, 0.5, 0.5, 0.5)
    made = judging(store, replace(ASHA, resume=True), trial(0))
    made.look(ledger, LEASE, NOW)

    assert set(made.orders(planned=9, may_start=True).waits) == {0}
    assert made.orders(planned=9, may_start=False).waits == {}


# Taken up again


def reopened(store, ledger, setting, *values):
    """A trial that has logged values and was taken up again since."""
    store.log(0, *values, at=NOW - 100)
    ledger.reopened, ledger._trials = {0: NOW}, [trial(0)]
    made = Judging(store, setting, ["loss"])
    made.take_over(ledger, "s-1")
    made.follow(trial(0))
    made.look(ledger, LEASE, NOW + 1)
    return made


@pytest.mark.parametrize(
    "setting", [Setting("nan", **LOSS), Setting("threshold", **LOSS, worse_than=9.0), ASHA]
)
def test_what_was_logged_before_a_trial_was_taken_up_again_does_not_count(store, ledger, setting):
    made = reopened(store, ledger, setting, 0.5, 99.0, float("nan"))

    assert (orders(made).stops, ledger.rows) == ({}, [])

    store.log(0, float("nan"), at=NOW + 2)
    made.look(ledger, LEASE, NOW + 12)

    assert orders(made).stops == {0: "stopped at step 1: loss is NaN"}


def test_a_trial_that_was_taken_up_again_is_judged_before_it_is_as_far_as_it_was(store, ledger):
    made = reopened(store, ledger, ASHA, *[0.5] * 20)
    old = store.curves["run-0"]
    store.curves["run-0"] = [MetricPoint(step, 0.7, int(NOW + 1) * 1000) for step in range(1, 4)] + old
    made.look(ledger, LEASE, NOW + 2)

    assert ledger.rows == [StoredScore(0, "loss", 3, 0.7)]


def test_the_wrong_name_of_an_attempt_before_the_code_was_mended_is_not_told(store, ledger):
    store.names["run-0"] = "Loss"
    store.log(0, 0.5, at=NOW - 100, metric="Loss")
    ledger.reopened, ledger._trials = {0: NOW}, [trial(0)]
    made = Judging(store, None, ["loss"])
    made.take_over(ledger, "s-1")
    made.follow(trial(0))
    made.look(ledger, LEASE, NOW + 1)

    assert orders(made).unseen == ""


# Names of metrics


def test_a_name_that_differs_in_punctuation_is_told_at_once(store, ledger):
    made = Judging(store, None, ["val_acc"])
    store.log(0, 0.5, metric="val/acc")
    made.follow(trial(0))
    made.look(ledger, LEASE, NOW)

    assert orders(made).unseen == "val_acc not seen; logged: 'val/acc'"


def test_the_nearest_names_come_first_and_show_their_spaces():
    """Case O14."""
    unseen = Unseen(["val_acc"])
    unseen.look(["zebra", "val/acc", "loss", "val_acc ", "accuracy"], has_ended=False)

    assert unseen.words == "val_acc not seen; logged: 'val_acc ', 'val/acc', 'accuracy', 'loss' and 1 more"


def test_another_name_is_told_once_the_first_trial_has_ended(store, ledger):
    made = Judging(store, None, ["val_acc"])
    store.log(0, 0.5, metric="accuracy")
    made.follow(trial(0))
    made.look(ledger, LEASE, NOW)

    assert orders(made).unseen == ""

    made.follow(trial(0, State.SUCCEEDED))
    made.look(ledger, LEASE, NOW + 10)

    assert orders(made).unseen == "val_acc not seen; logged: 'accuracy'"


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.STOPPED])
@pytest.mark.parametrize("logged", ["", "system/cpu_utilization_percentage"])
def test_a_trial_that_died_before_it_logged_anything_says_nothing(store, ledger, state, logged):
    made = Judging(store, None, ["loss"])
    store.curves["run-0"], store.names["run-0"] = [MetricPoint(1, 1.0, 1)], logged
    store.latest = lambda run_ids: {r: {logged: MetricPoint(1, 1.0, 1)} if logged else {} for r in run_ids}
    made.follow(trial(0, state))
    made.look(ledger, LEASE, NOW)

    assert orders(made).unseen == ""

    made.follow(trial(1, State.SUCCEEDED))
    made.look(ledger, LEASE, NOW + 10)

    assert orders(made).unseen.startswith("loss not seen; logged: ")


def test_a_trial_that_failed_with_other_names_logged_tells_them(store, ledger):
    made = Judging(store, None, ["val_acc"])
    store.log(0, 0.5, metric="accuracy")
    made.follow(trial(0, State.FAILED))
    made.look(ledger, LEASE, NOW)

    assert orders(made).unseen == "val_acc not seen; logged: 'accuracy'"


def test_a_metric_that_comes_after_all_takes_the_warning_back(store, ledger):
    made = Judging(store, None, ["loss"])
    store.log(0, 0.5, metric="Loss")
    store.log(1, 0.5)
    made.follow(trial(0))
    made.look(ledger, LEASE, NOW)
    made.follow(trial(1))
    made.look(ledger, LEASE, NOW + 10)

    assert (orders(made).unseen, made.unseen.is_settled) == ("", True)
