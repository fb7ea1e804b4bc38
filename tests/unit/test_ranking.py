"""Who won, and why the others did not."""

import math
import statistics
import time
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.pareto import pareto_front
from airflows.ranking import Aim, Scored, rank
from airflows.scores import Take, is_sound
from airflows.trial import Reason, State

NAN, INF = math.nan, math.inf
LOSS = Aim("loss", "minimize")
ACCURACY = Aim("acc", "maximize")


@dataclass(frozen=True)
class Bound:
    metric: str
    op: str
    bound: float


def trials(*values, replicates=1, **fields):
    return [
        Scored(
            number,
            number // replicates,
            {"parameters.lr": number // replicates},
            State.SUCCEEDED,
            value=value,
            run_id=f"run{number}",
            **fields,
        )
        for number, value in enumerate(values)
    ]


def reasons(ranking):
    return {trial.number: trial.reason for trial in ranking.unranked}


def test_values_that_are_not_sound_never_win_and_are_listed_as_they_are():
    """Case O12."""
    ranking = rank(LOSS, trials(0.31, NAN, -INF, 1.797e308))
    assert ranking.winner.number == 0
    assert ranking.winner.group.value == 0.31
    assert reasons(ranking) == {1: "diverged: NaN", 2: "diverged: -Infinity", 3: "diverged: 1.797e+308"}


def test_what_the_ledger_kept_of_an_unsound_value_is_listed():
    """The ledger has no value for it, only how it was shown."""
    kept = [replace(trial, value=None, raw="-Infinity") for trial in trials(0)]
    ranking = rank(LOSS, [*kept, *trials(NAN, 0.5)[1:]])
    assert reasons(ranking)[0] == "diverged: -Infinity"
    assert ranking.winner.number == 1


def test_ranking_uses_the_trials_that_logged_the_metric():
    """Case O11."""
    ranking = rank(ACCURACY, trials(0.7, None, 0.8))
    assert [group.trials for group in ranking.ranked] == [(2,), (0,)]
    assert reasons(ranking) == {1: "no metric: acc was not logged"}


def test_a_missing_step_is_named():
    ranking = rank(replace(ACCURACY, take=Take("at_step", 100)), trials(None))
    assert reasons(ranking) == {0: "no metric: acc was not logged at step 100"}
    assert ranking.rule == "at_step 100"


def test_the_step_that_decided_goes_with_the_group():
    """Case O15."""
    by_best = rank(replace(ACCURACY, take=Take("best")), trials(0.9, 0.85, step=2))
    assert by_best.rule == "best"
    assert by_best.winner.group.steps == (2,)


def test_ties_go_to_the_lower_number_whatever_the_order():
    assert rank(LOSS, reversed(trials(0.5, 0.5, 0.5))).winner.number == 0
    assert [g.trials for g in rank(ACCURACY, trials(0.5, 0.5)[::-1]).ranked] == [(0,), (1,)]


def test_only_succeeded_trials_compete():
    states = [
        (State.FAILED, Reason.ERROR, "ValueError: no\nmore", "failed: ValueError: no"),
        (State.FAILED, Reason.OUT_OF_MEMORY, "", "failed: It ran out of memory."),
        (State.CANCELLED, Reason.USER, "", "cancelled"),
        (State.STOPPED, Reason.RULE, "", "stopped early: it competes only with take: best"),
        (State.RUNNING, Reason.NONE, "", "not finished: running"),
        (State.PENDING, Reason.NONE, "", "not finished: pending"),
    ]
    others = [
        Scored(number, number, {}, state, reason, value=0.0, message=message)
        for number, (state, reason, message, _) in enumerate(states, 1)
    ]
    ranking = rank(LOSS, [*trials(0.5), *others])
    assert ranking.winner.number == 0
    assert len(ranking.ranked) == 1
    assert reasons(ranking) == {number: text for number, (*_, text) in enumerate(states, 1)}


def test_a_trial_stopped_early_competes_with_take_best_and_is_marked():
    stopped = Scored(1, 1, {}, State.STOPPED, Reason.RULE, value=0.1)
    ranking = rank(replace(LOSS, take=Take("best")), [*trials(0.5), stopped])
    assert ranking.winner.number == 1
    assert [group.stopped_early for group in ranking.ranked] == [True, False]


def test_groups_of_replicates_are_ranked_by_their_mean():
    ranking = rank(replace(LOSS, replicates=2), trials(0.1, 0.9, 0.4, 0.5, replicates=2))
    first, second = ranking.ranked
    assert first.trials == (2, 3)
    assert (first.value, first.mean, first.n) == (0.45, 0.45, 2)
    assert first.sd == pytest.approx(statistics.stdev([0.4, 0.5]))
    assert first.ci95 == pytest.approx((0.45 - 12.706204736 * 0.05, 0.45 + 12.706204736 * 0.05))
    assert second.trials == (0, 1)
    assert ranking.winner.number == 2, "the best replicate stands for the group"
    assert ranking.winner.run_id == "run2"


@pytest.mark.parametrize(
    ("across", "winner", "value"), [("mean", 3, 0.3), ("median", 0, 0.1), ("worst", 3, 0.3)]
)
def test_across_replicates_decides_what_a_group_is_worth(across, winner, value):
    aim = replace(LOSS, replicates=3, across_replicates=across)
    ranking = rank(aim, trials(0.1, 0.1, 2.0, 0.3, 0.3, 0.3, replicates=3))
    assert ranking.winner.group.trials[0] == winner
    assert ranking.winner.group.value == pytest.approx(value)


def test_the_median_of_very_large_values_is_finite():
    aim = replace(ACCURACY, replicates=2, across_replicates="median")
    assert rank(aim, trials(1.7e308, 1.6e308, replicates=2)).winner.group.value == pytest.approx(1.65e308)


def test_worst_of_a_score_to_maximise_is_the_lowest():
    aim = replace(ACCURACY, replicates=2, across_replicates="worst")
    assert rank(aim, trials(0.9, 0.2, 0.5, 0.4, replicates=2)).winner.group.value == 0.4


def test_a_group_that_lost_a_replicate_is_not_ranked_unless_allowed():
    scored = trials(0.1, NAN, 0.4, 0.5, replicates=2)
    ranking = rank(replace(LOSS, replicates=2), scored)
    assert [group.trials for group in ranking.ranked] == [(2, 3)]
    assert reasons(ranking) == {0: "only 1 of the 2 replicates needed count", 1: "diverged: NaN"}
    allowed = rank(replace(LOSS, replicates=2, min_replicates=1), scored)
    assert [group.trials for group in allowed.ranked] == [(0,), (2, 3)]


def test_replicates_that_are_not_created_yet_are_missed():
    ranking = rank(replace(LOSS, replicates=3), trials(0.1, 0.2, replicates=3))
    assert ranking.ranked == ()
    assert ranking.winner is None


def test_a_difference_within_noise_is_said_to_be():
    aim = replace(ACCURACY, replicates=3)
    apart = rank(aim, trials(0.90, 0.91, 0.92, 0.10, 0.11, 0.12, replicates=3)).ranked
    close = rank(aim, trials(0.90, 0.80, 0.95, 0.89, 0.94, 0.80, replicates=3)).ranked
    assert (apart[0].separable_from_winner, apart[0].p) == (None, None)
    assert apart[1].separable_from_winner is True
    assert apart[1].p < 1e-4
    assert close[1].separable_from_winner is False
    assert close[1].p > 0.5


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
@pytest.mark.parametrize("across", ["worst", "median"])
def test_a_better_mean_than_the_winners_is_not_called_separable_from_it(goal, across):
    """The winner by worst or median has the worse mean, and the test of the means is sure of it."""
    sign = 1.0 if goal == "minimize" else -1.0
    aim = Aim("loss", goal, replicates=12, across_replicates=across)
    steady, odd = [0.98, 1.02] * 6, ([0.5] * 11 + [1.1] if across == "worst" else [1.05] * 7 + [0.1] * 5)
    losses = [*steady, *odd, *[5.0, 5.1] * 6]
    first, second, third = rank(aim, trials(*(sign * loss for loss in losses), replicates=12)).ranked

    assert first.point == 0
    assert sign * second.mean < sign * first.mean
    assert second.p_adjusted < 0.05
    assert (second.separable_from_winner, second.is_ahead) == (False, True)
    assert (third.separable_from_winner, third.is_ahead) == (True, False)


def test_single_trials_cannot_be_told_from_noise():
    first, second = rank(LOSS, trials(0.1, 0.2)).ranked
    assert (first.sd, first.ci95) == (None, None)
    assert (second.separable_from_winner, second.p) == (None, None)


def test_a_broken_constraint_keeps_a_point_from_winning_but_not_out_of_the_table():
    aim = replace(ACCURACY, constraints=[Bound("latency_ms", "<=", 20)])
    fast = {"latency_ms": 20.0}
    scored = [
        replace(trials(0.9)[0], number=0, point=0, constrained={"latency_ms": 25.0}),
        replace(trials(0.7)[0], number=1, point=1, constrained=fast),
        replace(trials(0.8)[0], number=2, point=2, constrained={}),
        replace(trials(0.6)[0], number=3, point=3, constrained={"latency_ms": NAN}),
    ]
    ranking = rank(aim, scored)
    assert ranking.winner.number == 1
    assert [(g.trials, g.rank, g.feasible, g.note) for g in ranking.ranked] == [
        ((1,), 1, True, ""),
        ((0,), 2, False, "constraint latency_ms <= 20 broken: 25.0"),
        ((2,), 3, False, "constraint latency_ms <= 20 unknown: latency_ms was not logged"),
        ((3,), 4, False, "constraint latency_ms <= 20 broken: NaN"),
    ]


def test_without_a_feasible_point_there_is_no_winner():
    aim = replace(ACCURACY, constraints=[Bound("size", "<", 1)])
    ranking = rank(aim, trials(0.9, constrained={"size": 1.0}))
    assert ranking.winner is None
    assert ranking.ranked[0].note == "constraint size < 1 broken: 1.0"


def test_one_replicate_that_breaks_a_constraint_makes_its_group_infeasible():
    aim = replace(ACCURACY, replicates=2, constraints=[Bound("size", "<=", 1)])
    scored = trials(0.9, 0.9, 0.1, 0.1, replicates=2, constrained={"size": 1.0})
    scored[1] = replace(scored[1], constrained={"size": 2.0})
    ranking = rank(aim, scored)
    assert ranking.winner.group.trials == (2, 3)
    assert ranking.ranked[1].separable_from_winner is None, "what cannot win is not compared"


def test_nothing_to_rank_is_no_error():
    ranking = rank(LOSS, [])
    assert (ranking.ranked, ranking.unranked, ranking.winner) == ((), (), None)


def test_a_group_is_written_as_documents_show_it():
    group = rank(LOSS, trials(0.5, step=7)).ranked[0]
    assert group.to_dict() == {
        "rank": 1,
        "trials": [0],
        "overrides": {"parameters.lr": 0},
        "value": 0.5,
        "mean": 0.5,
        "sd": None,
        "n": 1,
        "ci95": None,
        "feasible": True,
        "separable_from_winner": None,
        "p": None,
        "p_adjusted": None,
        "steps": [7],
        "stopped_early": False,
        "note": "",
    }


values = st.one_of(st.none(), st.floats(allow_nan=True), st.sampled_from([0.1, 0.2, 0.3, 1.797e308]))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([State.SUCCEEDED, State.FAILED]), values), max_size=24),
    st.integers(1, 3),
    st.sampled_from(["minimize", "maximize"]),
    st.sampled_from(["mean", "median", "worst"]),
    st.one_of(st.none(), st.integers(1, 3)),
    st.randoms(),
)
def test_ranking_agrees_with_a_direct_formula(rows, replicates, goal, across, least, shuffle):
    scored = [
        Scored(number, number // replicates, {}, state, value=value)
        for number, (state, value) in enumerate(rows)
    ]
    # The direct formula: for every point the values that count, its worth, then one sort.
    expected = []
    for point in range(-(-len(rows) // replicates)):
        members = [t for t in scored if t.point == point]
        good = [
            t.value
            for t in members
            if t.state is State.SUCCEEDED and t.value is not None and is_sound(t.value)
        ]
        if len(good) < (replicates if least is None else least):
            continue
        pick = max if goal == "minimize" else min
        worth = {
            "mean": sum(v / len(good) for v in good),
            "median": statistics.median([v / 4 for v in good]) * 4,
            "worst": pick(good),
        }
        expected.append((worth[across] if goal == "minimize" else -worth[across], point, len(good)))
    expected.sort()

    shuffled = list(scored)
    shuffle.shuffle(shuffled)
    ranking = rank(
        Aim("m", goal, across_replicates=across, min_replicates=least, replicates=replicates), shuffled
    )

    worths = [(g.value if goal == "minimize" else -g.value) for g in ranking.ranked]
    assert worths == pytest.approx([worth for worth, _, _ in expected], rel=1e-12, abs=1e-300)
    assert worths == sorted(worths)
    assert sorted(g.trials[0] // replicates for g in ranking.ranked) == sorted(p for _, p, _ in expected)
    assert sum(g.n for g in ranking.ranked) == sum(n for _, _, n in expected)
    listed = [n for g in ranking.ranked for n in g.trials] + [u.number for u in ranking.unranked]
    assert sorted(listed) == list(range(len(rows))), "every trial is listed once"
    assert [g.rank for g in ranking.ranked] == list(range(1, len(expected) + 1))


def test_ten_thousand_trials_are_ranked_well_under_a_second():
    scored = trials(*(0.5 + (n * 7919 % 10_000) / 10_000 for n in range(9999)), replicates=3)
    aim = replace(LOSS, replicates=3)
    began = time.process_time()
    ranking = rank(aim, scored)
    assert len(ranking.ranked) == 3333
    assert time.process_time() - began < 1


points = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), max_size=30)


@given(points)
def test_the_pareto_front_is_what_no_other_row_beats(rows):
    goals = ["minimize", "maximize", "minimize"]

    def beats(one, other):
        a, b = (one[0], -one[1], one[2]), (other[0], -other[1], other[2])
        return a != b and all(x <= y for x, y in zip(a, b, strict=True))

    expected = [i for i, row in enumerate(rows) if not any(beats(other, row) for other in rows)]
    assert pareto_front(rows, goals) == expected


def test_unsound_values_are_never_in_front():
    assert pareto_front([(NAN, 0.0), (0.5, 0.5), (-INF, 0.1)], ["minimize", "minimize"]) == [1]


def test_comparisons_with_the_winner_are_corrected_for_their_number():
    aim = replace(LOSS, replicates=3)
    two = [0.9, 1.0, 1.1, 1.17, 1.27, 1.37]
    alone = rank(aim, trials(*two, replicates=3)).ranked[1]
    assert (alone.p, alone.separable_from_winner) == (alone.p_adjusted, True)
    crowd = [value for at in range(10) for value in (0.91 + at / 1000, 1.01 + at / 1000, 1.11 + at / 1000)]
    among = next(g for g in rank(aim, trials(*two, *crowd, replicates=3)).ranked if g.point == 1)
    assert among.p == pytest.approx(alone.p)
    assert among.p_adjusted == pytest.approx(11 * alone.p)
    assert among.separable_from_winner is False


def with_added(*added):
    """Two points with two replicates each, and further replicates of the first one."""
    return [
        *trials(0.1, 0.2, 0.4, 0.5, replicates=2),
        *(Scored(4 + at, 0, {}, state, value=value) for at, (state, value) in enumerate(added)),
    ]


def test_replicates_added_later_are_not_missed_before_they_have_ended():
    aim = replace(LOSS, replicates=2)
    ranking = rank(aim, with_added((State.RUNNING, None), (State.SUCCEEDED, 0.3)))
    assert ranking.winner.group.trials == (0, 1, 5)
    assert reasons(ranking) == {4: "not finished: running"}


def test_replicates_added_later_that_a_person_cancelled_are_not_missed():
    ranking = rank(replace(LOSS, replicates=2), with_added((State.CANCELLED, None)))
    assert ranking.winner.group.trials == (0, 1)


def test_a_replicate_added_later_that_failed_is_missed_like_any_other():
    ranking = rank(replace(LOSS, replicates=2), with_added((State.FAILED, None), (State.SUCCEEDED, 0.3)))
    assert [group.point for group in ranking.ranked] == [1]
