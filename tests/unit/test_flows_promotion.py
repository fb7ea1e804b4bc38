"""Whether a winner takes an alias: the objective's own rules decide, and of equals the holder stays."""

import pytest

from airflows.engine.promotion import Candidate, is_better
from airflows.objective import parse_constraint
from airflows.ranking import Aim

ACCURACY = Aim("accuracy", "maximize")
LOSS = Aim("loss", "minimize")


def having(value: float | None, **metrics: float) -> Candidate:
    return Candidate(value, metrics)


@pytest.mark.parametrize(
    ("aim", "winner", "holder", "moves"),
    [
        (ACCURACY, 0.9, 0.8, True),
        (ACCURACY, 0.8, 0.9, False),
        (ACCURACY, 0.9, 0.9, False),
        (LOSS, 0.1, 0.2, True),
        (LOSS, 0.2, 0.1, False),
        (LOSS, -1.0, 0.0, True),
    ],
)
def test_only_the_better_one_takes_the_alias(aim, winner, holder, moves):
    wins, why = is_better(aim, having(winner), having(holder), "3")
    assert wins is moves
    verdict = "is better than" if moves else "is not better than"
    assert why == f"{aim.metric} {winner:.6g} {verdict} {holder:.6g} of version 3 ({aim.goal})."


def test_nobody_is_beaten_by_anybody():
    assert is_better(LOSS, having(7.0), None, "") == (True, "Nothing has the alias yet.")


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1.797e308])
def test_what_is_no_number_cannot_hold_it(value):
    wins, why = is_better(LOSS, having(7.0), having(value), "3")
    assert wins
    assert why.startswith("Version 3 cannot hold it: diverged: ")


def test_a_holder_without_the_metric_cannot_hold_it():
    wins, why = is_better(LOSS, having(7.0), having(None), "3")
    assert (wins, why) == (True, "Version 3 cannot hold it: no metric: loss was not logged.")


def test_a_holder_that_breaks_a_constraint_cannot_hold_it():
    aim = Aim("loss", "minimize", constraints=[parse_constraint("latency <= 20")])
    wins, why = is_better(aim, having(0.5, latency=10), having(0.1, latency=30), "3")
    assert wins
    assert why == "Version 3 cannot hold it: constraint latency <= 20 broken: 30."
    wins, _ = is_better(aim, having(0.5, latency=10), having(0.1, latency=15), "3")
    assert not wins


def test_replicates_do_not_matter_for_two_values():
    aim = Aim("loss", "minimize", replicates=3, min_replicates=2)
    assert is_better(aim, having(0.1), having(0.2), "3")[0]
