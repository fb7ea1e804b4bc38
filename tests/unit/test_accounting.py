"""What attempts cost, what of it was lost, and how far a sweep comes at its pace."""

import pytest

from airflows.ledger import AttemptRow
from airflows.report.accounting import Forecast, Spent, Standing, forecast, spent_by_trial, total

NOW = 1_000.0
HOUR = 3600.0


def attempt(at, state="failed", resumed_from="", *, begins=0.0, takes=10.0, accelerators=8, **changes):
    fields = dict.fromkeys(AttemptRow.__dataclass_fields__)
    fields |= {
        "number": 0,
        "attempt": at,
        "state": state,
        "resumed_from": resumed_from,
        "submitted_at": begins,
        "started_at": begins + 5,
        "ended_at": begins + 5 + takes,
        "accelerators": accelerators,
    }
    return AttemptRow(**(fields | changes))


def useful(*attempts):
    """Which of a trial's attempts were of use."""
    (spent,) = spent_by_trial(attempts, NOW).values()
    assert all((one.useful_s > 0) != (one.lost_s > 0) for one in spent)
    return [one.useful_s > 0 for one in spent]


def test_an_attempt_has_its_wait_its_time_and_its_accelerators():
    assert spent_by_trial([attempt(0, "succeeded")], NOW) == {0: [Spent(5.0, 10.0, 80.0, 0.0)]}


def test_what_waits_or_runs_now_counts_until_now():
    waiting = attempt(0, "queued", begins=900, started_at=None, ended_at=None)
    running = attempt(0, "running", begins=900, ended_at=None)
    assert spent_by_trial([waiting], NOW)[0] == [Spent(100.0, 0.0, 0.0, 0.0)]
    assert spent_by_trial([running], NOW)[0] == [Spent(5.0, 95.0, 760.0, 0.0)]


def test_what_was_never_accepted_cost_nothing():
    refused = attempt(0, submitted_at=None, started_at=None)
    assert total(spent_by_trial([refused], NOW)[0]) == Spent()


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([attempt(0, "succeeded")], [True]),
        ([attempt(0, "stopped")], [True]),
        ([attempt(0, "cancelled")], [False]),
        ([attempt(0), attempt(1, "succeeded")], [False, True]),
        ([attempt(0), attempt(1, "succeeded", "step-5")], [True, True]),
        ([attempt(0), attempt(1, "failed", "step-5")], [False, False]),
        # The second one came no further, so the third went on from what the first had made.
        ([attempt(0), attempt(1, "failed", "5"), attempt(2, "succeeded", "5")], [True, False, True]),
        ([attempt(0), attempt(1, "failed", "5"), attempt(2, "succeeded", "9")], [True, True, True]),
        # The last one began at the beginning.
        ([attempt(0), attempt(1, "failed", "5"), attempt(2, "succeeded")], [False, False, True]),
        ([attempt(0), attempt(1, "running", "5", ended_at=None)], [True, True]),
        # Of one that was lost nobody knows where it began, or whether anything of it was used.
        ([attempt(0), attempt(1), attempt(2, "succeeded", "5")], [True, False, True]),
        ([attempt(0), attempt(1, exit_code=1), attempt(2, "succeeded", "5")], [False, True, True]),
    ],
)
def test_useful_is_what_the_result_rests_on(attempts, expected):
    assert useful(*attempts) == expected


def test_trials_are_kept_apart():
    other = attempt(0, "succeeded", number=1)
    spent = spent_by_trial([attempt(0), other], NOW)
    assert [total(own).lost_s for own in spent.values()] == [80.0, 0.0]


# Forecast


def standing(ended=50, total=200, elapsed_s=HOUR, accelerator_s=100 * HOUR, since=None):
    return Standing(ended, total, elapsed_s, ended if since is None else since, accelerator_s)


def test_without_limits_all_come_to_their_end():
    assert forecast(standing(), {}) == Forecast(200, 200, "", 3 * HOUR)


def test_the_wall_time_ends_a_sweep_before_all_are_done():
    found = forecast(standing(), {"limits.wall_time": 2.86 * HOUR})
    assert (found.trials, found.total, found.limit) == (143, 200, "limits.wall_time")


def test_the_limit_that_is_reached_first_is_named():
    limits = {"limits.wall_time": 3 * HOUR, "limits.accelerator_hours": 150 * HOUR}
    found = forecast(standing(), limits)
    assert (found.trials, found.limit) == (75, "limits.accelerator_hours")


def test_limits_that_are_not_reached_are_none():
    limits = {"limits.wall_time": 5 * HOUR, "limits.accelerator_hours": None}
    assert forecast(standing(), limits).limit == ""


def test_the_pace_is_that_since_the_sweep_was_resumed():
    assert forecast(standing(elapsed_s=100.0, since=10), {}).left_s == 1500.0


@pytest.mark.parametrize("known", [{"ended": 0}, {"ended": 200}, {"since": 0}])
def test_nothing_is_foretold_without_a_pace_or_when_all_is_over(known):
    assert forecast(standing(**known), {}) is None
