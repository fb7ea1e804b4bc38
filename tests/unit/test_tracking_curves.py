"""The curve of a trial whose attempts have a run each."""

import pytest

from airflows.scores import MetricPoint, Take, take_value
from airflows.tracking.service import joined_curve


def run(start_ms, *logged):
    """Return what one run logged, as (step, value), in the order of time."""
    return [MetricPoint(step, value, start_ms + n) for n, (step, value) in enumerate(logged)]


def stepless(start_ms, *values):
    return run(start_ms, *[(0, value) for value in values])


@pytest.mark.parametrize(
    ("first", "second", "best"),
    [
        (stepless(0, 0.9), stepless(100, 0.3, 0.1, 0.5), 0.1),
        (stepless(0, 0.3, 0.1), stepless(100, 0.5), 0.1),
        # One value each is that of step 0.
        (stepless(0, 0.1), stepless(100, 0.5), 0.5),
        ([], stepless(100, 0.3, 0.1, 0.5), 0.1),
    ],
)
def test_the_best_of_values_without_steps_is_looked_for_among_all(first, second, best):
    curve = joined_curve(["a0", "a1"], {"a0": first, "a1": second})

    assert take_value(curve, Take("best"), "minimize").value == best


def test_the_last_values_without_steps_are_those_of_the_later_attempt_too():
    curve = joined_curve(["a0", "a1"], {"a0": stepless(0, 9.0, 4.0), "a1": stepless(100, 2.0, 3.0)})

    assert take_value(curve, Take("mean_of_last", 3), "minimize").value == pytest.approx(3.0)


@pytest.mark.parametrize("start_ms", [100, -100])
def test_of_a_step_that_both_have_the_later_attempts_value_counts_whatever_the_clocks_say(start_ms):
    first = run(0, (0, 0.3), (1, 0.01), (1, 0.2), (2, 0.1))
    second = run(start_ms, (1, 0.9), (1, 0.8), (3, 0.7))
    curve = joined_curve(["a0", "a1"], {"a0": first, "a1": second})

    taken = {step: take_value(curve, Take("at_step", step), "minimize").value for step in range(5)}
    assert taken == {0: 0.3, 1: 0.8, 2: 0.1, 3: 0.7, 4: None}
