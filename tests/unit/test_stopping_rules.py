"""Stopping rules: known curves give known verdicts, each told with its numbers."""

import math

import pytest

from airflows.scores import MetricPoint
from airflows.stopping.curves import Score, kept, next_step, on_its_own, series
from airflows.stopping.rungs import Standing, judge
from airflows.stopping.setting import Setting, bracket, rungs

LOSS = {"metric": "loss", "goal": "minimize"}
ASHA = Setting("asha", **LOSS, min_steps=3, reduction=3)
MEDIAN = Setting("median", **LOSS, min_steps=2, after_trials=3)


def curve(*values, first=1):
    return [Score(step, value) for step, value in enumerate(values, first)]


def flat(value, steps=30):
    return curve(*[value] * steps)


def standing(number, scores, setting, *, is_open=False, point=None):
    point = number if point is None else point
    return Standing(number, point, is_open, kept(setting, point, scores))


def stopped(setting, curves, **open_ones):
    return judge(setting, [standing(n, scores, setting, **open_ones) for n, scores in enumerate(curves)])


def words(setting, curves):
    return {number: f"step {stop.step}: {stop.words}" for number, stop in stopped(setting, curves).items()}


# Curves as MLflow has them


def test_of_two_values_for_a_step_the_later_one_counts():
    points = [MetricPoint(2, 5.0, 10), MetricPoint(1, 9.0, 5), MetricPoint(2, 4.0, 20)]

    assert series(points) == [Score(1, 9.0), Score(2, 4.0)]


def test_a_rung_counts_where_the_metric_is_logged_next():
    every_ten = [Score(step, 100.0 - step) for step in (10, 20, 30, 40)]

    assert kept(ASHA, 0, every_ten) == [Score(10, 90.0), Score(30, 70.0)]
    assert next_step(ASHA, 0, every_ten) == 81
    assert next_step(ASHA, 0, []) == 3


def test_with_take_best_a_trial_is_as_good_as_its_best_so_far():
    best = Setting("asha", **LOSS, min_steps=3, takes_best=True)

    assert kept(best, 0, curve(2.0, 1.0, 3.0)) == [Score(3, 1.0)]
    assert kept(ASHA, 0, curve(2.0, 1.0, 3.0)) == [Score(3, 3.0)]


# asha


def test_asha_lets_the_best_third_go_on():
    found = words(ASHA, [flat(0.5), flat(0.4), flat(0.6), flat(0.3), flat(0.45), flat(0.35)])

    assert found[2] == "step 3: 0.6 is above 0.4, the best of 3 trials at that step"
    assert found[5] == "step 9: 0.35 is above 0.3, the best of 4 trials at that step"
    assert set(found) == {2, 4, 5}


def test_the_worst_that_goes_on_is_named_where_several_do():
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]

    assert words(ASHA, [flat(v) for v in values])[5] == (
        "step 3: 0.6 is above 0.2, the worst of the best 2 of 6 trials at that step"
    )


def test_maximizing_is_the_mirror_image():
    up = Setting("asha", "acc", "maximize", min_steps=3)

    found = words(up, [flat(0.5), flat(0.4)])

    assert found == {1: "step 3: 0.4 is below 0.5, the best of 2 trials at that step"}


def test_nobody_is_stopped_at_max_steps_or_later():
    setting = Setting("asha", **LOSS, min_steps=3, max_steps=9)

    assert list(rungs(setting, 0)) == [3]
    assert set(stopped(setting, [flat(0.5), flat(0.4), curve(0.1, 0.1, 0.1, *[9.0] * 20)])) == set()


def test_a_reduction_that_is_no_whole_number_still_moves_on():
    steps = rungs(Setting("asha", **LOSS, min_steps=1, max_steps=12, reduction=1.5), 0)

    assert list(steps) == [1, 2, 3, 5, 8]


# hyperband


def test_hyperband_begins_at_another_rung_in_each_bracket():
    setting = Setting("hyperband", **LOSS, min_steps=1, max_steps=9, reduction=3)
    first = {bracket(setting, point): list(rungs(setting, point)) for point in range(30)}

    assert first == {0: [1, 3], 1: [3], 2: []}


def test_hyperband_mixes_its_brackets_evenly():
    setting = Setting("hyperband", **LOSS, min_steps=1, max_steps=9, reduction=3)
    drawn = [bracket(setting, point) for point in range(17)]

    assert sorted(drawn) == [0] * 9 + [1] * 5 + [2] * 3
    assert all(0 in drawn[at : at + 3] for at in range(15))


def test_a_trial_is_compared_within_its_bracket_only():
    setting = Setting("hyperband", **LOSS, min_steps=1, max_steps=9, reduction=3)
    values = [0.1 if bracket(setting, point) == 0 else 0.9 - point / 100 for point in range(12)]

    assert {bracket(setting, point) for point in stopped(setting, [flat(v) for v in values])} <= {0}


# median


def test_median_stops_what_is_worse_than_the_middle_of_the_earlier_ones():
    found = words(MEDIAN, [flat(0.2), flat(0.9), flat(0.5), flat(0.6), flat(0.4)])

    assert found == {3: "step 2: 0.6 is above the median 0.5 of 3 trials at that step"}


def test_median_waits_for_trials_to_compare_with():
    assert words(MEDIAN, [flat(0.1), flat(0.2), flat(9.0)]) == {}


def test_what_was_stopped_counts_as_worse_at_later_steps():
    curves = [flat(value) for value in (0.1, 0.2, 0.3, 0.4, 0.35, 0.25)]

    assert set(stopped(MEDIAN, curves)) == {3, 4}


# patience


def test_patience_ends_where_nothing_became_better_for_long():
    setting = Setting("patience", **LOSS, steps=4, min_delta=0.05)
    scores = kept(setting, 0, curve(1.0, 0.5, 0.48, 0.47, 0.46, 0.46, 0.2))

    assert on_its_own(setting, scores) == (Score(6, 0.46), "no better than 0.5 of step 2 for 4 steps")


def test_patience_says_when_to_look_again():
    setting = Setting("patience", **LOSS, steps=4)

    assert kept(setting, 0, curve(1.0, 0.5, 0.6)) == []
    assert next_step(setting, 0, curve(1.0, 0.5, 0.6)) == 6


def test_patience_ends_nobody_before_min_steps():
    setting = Setting("patience", **LOSS, steps=2, min_steps=5)

    assert on_its_own(setting, curve(1.0, 1.0, 1.0, 1.0)) is None
    assert on_its_own(setting, curve(1.0, 1.0, 1.0, 1.0, 1.0))[0] == Score(5, 1.0)


# threshold and nan


def test_a_threshold_counts_from_its_step_on():
    setting = Setting("threshold", "acc", "maximize", worse_than=0.2, after_steps=3)

    assert on_its_own(setting, kept(setting, 0, curve(0.1, 0.1, 0.3, 0.5))) is None
    assert on_its_own(setting, kept(setting, 0, curve(0.1, 0.1, 0.15, 0.1))) == (
        Score(3, 0.15),
        "0.15 is below 0.2 (stop.worse_than)",
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [(math.nan, "NaN"), (math.inf, "Infinity"), (-1.7976931348623157e308, "-Infinity")],
)
def test_what_is_no_number_stops_a_trial(value, said):
    setting = Setting("nan", **LOSS)

    assert on_its_own(setting, [Score(7, value)]) == (Score(7, value), f"loss is {said}")
    assert on_its_own(Setting("asha", **LOSS, nan=False), [Score(7, value)]) is None


def test_where_nan_is_allowed_it_is_the_worst_value():
    setting = Setting("asha", **LOSS, min_steps=1, nan=False)

    assert set(stopped(setting, [flat(0.5), flat(math.nan)])) == {1}
    assert words(setting, [flat(0.5), flat(math.nan)])[1].startswith("step 1: NaN is above 0.5")


# Replicates


def test_replicates_are_compared_as_one():
    setting = Setting("asha", **LOSS, min_steps=3)
    values = [(0, 0.5), (0, 0.3), (1, 0.2), (1, 0.9), (2, 0.1), (2, 0.2)]
    trials = [standing(n, flat(v), setting, point=point) for n, (point, v) in enumerate(values)]

    assert judge(setting, trials)[1].words == (
        "the mean 0.55 of 2 replicates is above 0.4, the best of 2 points at that step"
    )
    assert set(judge(setting, trials)) == {1}


@pytest.mark.parametrize(("across", "value"), [("median", 0.35), ("worst", 0.9), ("mean", 0.45)])
def test_replicates_become_one_as_the_objective_has_it(across, value):
    setting = Setting("asha", **LOSS, min_steps=3, across=across)
    trials = [standing(0, flat(0.1), setting)]
    trials += [standing(n, flat(v), setting, point=1) for n, v in enumerate([0.9, 0.2, 0.4, 0.3], 1)]

    assert judge(setting, trials)[1].value == pytest.approx(value)


def test_a_point_waits_for_its_slower_replicate():
    setting = Setting("asha", **LOSS, min_steps=3)
    fast = [standing(n, flat(v), setting, point=n // 2) for n, v in enumerate([0.1, 0.1, 0.9])]
    slow = standing(3, curve(0.9), setting, point=1, is_open=True)

    assert judge(setting, [*fast, slow]) == {}
    assert set(judge(setting, [*fast, standing(3, curve(0.9), setting, point=1)])) == {1}
