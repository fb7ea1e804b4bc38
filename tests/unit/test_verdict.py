"""How far a winner can be trusted: who may be as good, what more replicates would tell, and what they cost."""

import time
from dataclasses import replace

import pytest

from airflows.power import welch_power
from airflows.ranking import Aim, Scored, rank
from airflows.report.accounting import Spent
from airflows.report.verdict import MOST_REPLICATES, priced, verdict, verdict_words
from airflows.significance import Summary
from airflows.trial import State

LOSS = Aim("loss", "minimize")


def judged(*groups, **aim):
    """Return the verdict on points whose replicates came out like this."""
    scored, number = [], 0
    for point, values in enumerate(groups):
        for value in values:
            scored.append(Scored(number, point, {"lr": point}, State.SUCCEEDED, value=value))
            number += 1
    return verdict(rank(replace(LOSS, min_replicates=1, **aim), scored))


def words(found, *, has_replicates=True):
    return "\n".join(verdict_words(found, "lr-7f3a9c", has_replicates=has_replicates))


def around(middle, spread=0.1):
    return [middle - spread, middle, middle + spread]


def ranks(groups):
    return [group.rank for group in groups]


def test_a_winner_beyond_noise_needs_nothing_more():
    found = judged(around(1.0, 0.01), around(5.0, 0.01), around(6.0, 0.01))
    assert (found.inseparable, found.separated, found.advice) == ((), 2, None)
    assert words(found) == "All 2 others that were tested differ from it beyond noise."
    assert ranks(found.contenders) == [1]


def test_the_set_of_those_that_may_be_as_good_is_named():
    found = judged(around(1.0), around(1.12), around(5.0), around(1.2))
    assert ranks(found.inseparable) == [2, 3]
    assert "2 of the 3 other points may be as good, within noise: rank 2 3" in words(found)


def test_a_better_mean_than_the_winners_is_no_confirmation_of_it():
    odd = [*[0.5] * 11, 1.1]
    found = judged([0.98, 1.02] * 6, odd, [5.0, 5.1] * 6, across_replicates="worst")
    assert (ranks(found.inseparable), found.separated) == ([2], 1)
    # It is no closer with more of them, and is not to be taken as equal.
    assert (found.close, found.advice) == ((), None)
    told = words(found)
    assert "1 of the 2 other points may be as good: the mean is better beyond noise at rank 2" in told
    assert "within noise" not in told
    assert ranks(found.contenders) == [1, 2]


def test_every_comparison_counts():
    """One difference at 3 % is one; the best of many is not."""
    close = [around(1.0), around(1.27)]
    assert judged(*close).inseparable == ()
    many = judged(*close, *(around(1.01 + at / 1000) for at in range(10)))
    assert len(many.inseparable) == 11


def test_advice_is_what_would_probably_separate_them_and_names_the_command():
    found = judged(around(1.0), around(1.2), around(1.25))
    advice = found.advice
    assert ranks(advice.groups) == [1, 2, 3]
    told = words(found)
    assert f"{advice.replicates} more replicates of each of the 3 points ranked 1 2 3 would probably" in told
    assert told.endswith(f"airflows resume lr-7f3a9c --replicates {advice.replicates}")
    # The nearest one decides, at the level at which Holm's method tests the largest p.
    grown = [Summary(3 + advice.replicates, mean, 0.1) for mean in (1.0, 1.2)]
    assert welch_power(*grown, 0.05) >= 0.8
    fewer = [replace(sample, n=sample.n - 1) for sample in grown]
    third = [Summary(2 + advice.replicates, mean, 0.1) for mean in (1.0, 1.25)]
    assert min(welch_power(*fewer, 0.05), welch_power(*third, 0.025)) < 0.8


def test_those_too_close_to_tell_are_left_out_of_the_advice():
    found = judged(around(1.0), around(1.001), around(1.2))
    assert ranks(found.close) == [2]
    assert ranks(found.advice.groups) == [1, 3]
    assert f"1 of them would probably take more than {MOST_REPLICATES} more replicates each." in words(found)


def test_when_all_are_too_close_they_are_as_good_as_equal():
    found = judged(around(1.0), around(1.001))
    assert (found.advice, ranks(found.contenders)) == (None, [1, 2])
    assert "take them as equal" in words(found)


def test_of_many_that_may_be_as_good_the_best_few_are_looked_at():
    """Thousands of points within noise: neither are they all run again, nor does the answer take long."""
    began = time.process_time()
    found = judged(*(around(1.0 + at / 10_000) for at in range(3000)))
    assert time.process_time() - began < 5
    assert len(found.inseparable) == 2999
    assert ranks(found.contenders) == list(range(1, 11))
    assert "not tell the best 9 of them from it: take them as equal" in words(found)


def test_the_bias_of_the_best_of_single_runs_is_named():
    found = judged([0.1], [0.2], [0.3], [0.4])
    assert (found.is_single, len(found.untested)) == (True, 3)
    told = words(found)
    assert "the best of 4 noisy ones: probably too good" in told
    assert ranks(found.advice.groups) == [1, 2, 3]
    assert "2 more replicates of each of the 3 points ranked 1 2 3 would show how much is noise" in told


def test_without_replicates_in_the_file_that_is_the_way():
    told = words(judged([0.1], [0.2]), has_replicates=False)
    assert "replicates in the sweep file" in told
    assert "airflows resume" not in told


def test_what_can_be_tested_is_not_held_up_by_what_cannot():
    found = judged(around(1.0), around(1.2), [1.1])
    assert (ranks(found.inseparable), len(found.untested), found.is_single) == ([3], 1, False)
    assert ranks(found.advice.groups) == [1, 3]


def test_alone_or_without_a_winner_there_is_nothing_to_judge():
    assert judged([0.1, 0.2]) is None
    assert judged() is None


def test_equal_replicates_of_different_points_are_certain_and_of_equal_ones_equal():
    assert judged([0.5, 0.5], [0.7, 0.7]).separated == 1
    same = judged([0.5, 0.5], [0.5, 0.5])
    assert (len(same.close), same.advice) == (1, None)


def test_the_price_is_what_the_replicates_so_far_cost():
    found = judged(around(1.0), around(1.2))
    spent = {number: [Spent(useful_s=3600.0 * (number + 1), lost_s=1e6)] for number in range(6)}
    advice = priced(found, spent).advice
    # On average 2 hours for one of the first point, and 5 for one of the second.
    assert advice.accelerator_hours == pytest.approx(advice.replicates * (2 + 5))
    assert f"about {advice.accelerator_hours:.2g} accelerator-hours" in words(priced(found, spent))


def test_what_nothing_is_known_of_has_no_price():
    found = judged(around(1.0), around(1.2))
    assert priced(found, {}).advice.accelerator_hours is None
    assert "accelerator-hours" not in words(priced(found, {}))


def test_documents_show_ranks():
    found = judged(around(1.0), around(1.2), around(9.0))
    assert found.to_dict() == {
        "inseparable": [2],
        "untested": 0,
        "close": [],
        "separated": 1,
        "is_single": False,
        "advice": {
            "replicates": found.advice.replicates,
            "ranks": [1, 2],
            "trials": 2 * found.advice.replicates,
            "accelerator_hours": None,
        },
    }
