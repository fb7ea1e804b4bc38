"""Which of a metric's logged values counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.scores import MetricPoint, Take, Taken, is_sound, latest, mean, shown, take_value

NAN, INF = math.nan, math.inf


def series(*values, start=1):
    return [MetricPoint(step, value, 1000 + step) for step, value in enumerate(values, start)]


def take(values, kind, n=0, goal="maximize"):
    return take_value(series(*values), Take(kind, n), goal)


def test_best_looks_at_every_step_and_last_at_the_end():
    """Case O15: which rule and step decided is part of the answer."""
    one, other = [0.5, 0.9, 0.7], [0.6, 0.8, 0.85]
    assert take(one, "best") == Taken(0.9, 2)
    assert take(other, "best") == Taken(0.85, 3)
    assert take(one, "last") == Taken(0.7, 3)
    assert take(other, "last") == Taken(0.85, 3)


def test_best_of_a_loss_is_the_lowest():
    assert take([0.5, 0.1, 0.3], "best", goal="minimize") == Taken(0.1, 2)


def test_best_passes_over_values_that_are_not_sound():
    assert take([NAN, 0.3, -INF, -1.797e308], "best", goal="minimize") == Taken(0.3, 2)


def test_best_of_equals_is_the_earliest_step():
    assert take([0.9, 0.9, 0.1], "best") == Taken(0.9, 1)


def test_best_without_a_sound_value_is_the_last_one_as_it_is():
    taken = take([INF, NAN], "best")
    assert math.isnan(taken.value)
    assert taken.step == 2


def test_mean_of_last_uses_only_the_last_values():
    assert take([100.0, 1.0, 2.0, 3.0], "mean_of_last", 3) == Taken(2.0, 4)


def test_mean_of_last_of_a_short_history_is_the_mean_of_all():
    assert take([1.0, 3.0], "mean_of_last", 5) == Taken(2.0, 2)


def test_mean_of_last_is_not_sound_when_one_of_them_is_not():
    assert take([1.0, INF, 3.0], "mean_of_last", 2) == Taken(INF, 3)
    assert take([INF, 1.0, 3.0], "mean_of_last", 2) == Taken(2.0, 3)


def test_mean_of_very_large_values_is_finite():
    assert mean([1.6e308, 1.6e308]) == 1.6e308


def test_at_step_is_that_step_or_nothing():
    assert take([0.1, 0.2, 0.3], "at_step", 2) == Taken(0.2, 2)
    assert take([0.1, 0.2, 0.3], "at_step", 7) == Taken()


def test_nothing_logged_is_nothing_taken():
    for kind in ("last", "best", "mean_of_last", "at_step"):
        assert take([], kind, 1) == Taken()


def test_a_step_logged_by_two_attempts_counts_once_with_the_later_value():
    first = [MetricPoint(1, 0.1, 10), MetricPoint(2, 0.2, 20), MetricPoint(3, 0.99, 30)]
    resumed = [MetricPoint(3, 0.3, 50), MetricPoint(4, 0.4, 60)]
    points = [*resumed, *first]
    assert take_value(points, Take("best"), "maximize") == Taken(0.4, 4)
    assert take_value(points, Take("at_step", 3), "maximize") == Taken(0.3, 3)
    assert take_value(points, Take("mean_of_last", 2), "maximize") == Taken(0.35, 4)


def test_a_metric_logged_without_steps_is_a_series_in_time():
    points = [MetricPoint(0, value, at) for at, value in enumerate([0.5, 0.9, 0.7])]
    assert take_value(points, Take("best"), "maximize") == Taken(0.9, 0)
    assert take_value(points, Take("last"), "maximize") == Taken(0.7, 0)
    assert take_value(points, Take("mean_of_last", 2), "maximize") == Taken(0.8, 0)


def test_latest_is_the_highest_step_then_time_then_value():
    points = [MetricPoint(2, 1.0, 5), MetricPoint(2, 3.0, 6), MetricPoint(2, 2.0, 6), MetricPoint(1, 9.0, 9)]
    assert latest(points) == MetricPoint(2, 3.0, 6)
    assert latest([]) is None


@given(st.lists(st.tuples(st.integers(-5, 5), st.floats(allow_nan=True), st.integers(0, 3)), min_size=1))
def test_last_agrees_with_what_mlflow_calls_latest(rows):
    points = [MetricPoint(step, value, at) for step, value, at in rows]
    expected = latest(points)
    assert expected is not None
    taken = take_value(points, Take("last"), "minimize")
    assert taken.step == expected.step
    assert shown(taken.value) == shown(expected.value) or taken.value == expected.value == 0


@pytest.mark.parametrize(
    ("value", "text", "sound"),
    [
        (0.31, "0.31", True),
        (NAN, "NaN", False),
        (INF, "Infinity", False),
        (-INF, "-Infinity", False),
        (1.797e308, "1.797e+308", False),
        (-1.797e308, "-1.797e+308", False),
        # What MLflow's SQL stores make of infinity.
        (1.7976931348623157e308, "Infinity", False),
        (-1.7976931348623157e308, "-Infinity", False),
        (1.7e308, "1.7e+308", True),
    ],
)
def test_values_that_cannot_win_are_shown_as_they_are(value, text, sound):
    assert shown(value) == text
    assert is_sound(value) is sound


def test_take_is_read_from_every_form_of_the_file():
    assert Take.of("last") == Take()
    assert Take.of("best") == Take("best")
    assert Take.of({"mean_of_last": 5}) == Take("mean_of_last", 5)
    assert Take.of({"at_step": 0}) == Take("at_step", 0)
    assert Take.of(Take("best")) == Take("best")
    with pytest.raises(ValueError, match="not a take"):
        Take.of("first")


def test_the_rule_is_named_with_its_number():
    assert Take("best").rule == "best"
    assert Take("mean_of_last", 5).rule == "mean_of_last 5"
    assert Take("at_step", 100).rule == "at_step 100"
    assert [Take(kind, 1).needs_history for kind in ("last", "best", "mean_of_last", "at_step")] == [
        False,
        True,
        True,
        True,
    ]
