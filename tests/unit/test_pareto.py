"""Several objectives: the front, its knee, constraints, and what does not compete."""

import math
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.pareto import distances, pareto_front, rank_front
from airflows.ranking import Aim, Scored
from airflows.trial import Reason, State

AIMS = (Aim("loss", "minimize"), Aim("speed", "maximize"))


@dataclass(frozen=True)
class Bound:
    metric: str
    op: str
    bound: float


def trials(*pairs, replicates=1):
    return [
        Scored(
            number,
            number // replicates,
            {"parameters.lr": number // replicates},
            State.SUCCEEDED,
            value=pair[0],
            run_id=f"run{number}",
            others=tuple(pair[1:]),
        )
        for number, pair in enumerate(pairs)
    ]


def fronted(ranking):
    return {group.point for group in ranking.front}


def test_the_front_is_what_no_other_point_beats_and_there_is_no_winner():
    ranking = rank_front(AIMS, trials((0.1, 1.0), (0.2, 5.0), (0.5, 6.0), (0.3, 4.0), (0.1, 0.5)))
    assert fronted(ranking) == {0, 1, 2}
    assert ranking.winner is None
    assert [group.rank for group in ranking.ranked] == [1, 2, 3, 4, 5]
    assert [group.on_front for group in ranking.ranked] == [True] * 3 + [False] * 2


def test_the_knee_is_the_best_compromise_and_comes_first():
    """Both extremes are worst in one objective; (0.2, 5) has nearly the best of both."""
    ranking = rank_front(AIMS, trials((0.1, 1.0), (0.2, 5.0), (0.5, 6.0)))
    assert ranking.ranked[0].point == 1
    assert [group.is_knee for group in ranking.ranked] == [True, False, False]
    assert (ranking.knee.number, ranking.knee.run_id) == (1, "run1")
    assert [(f.metric, f.value) for f in ranking.knee.group.objectives] == [("loss", 0.2), ("speed", 5.0)]


def test_a_point_that_is_best_in_all_is_the_whole_front():
    ranking = rank_front(AIMS, trials((0.1, 9.0), (0.2, 5.0), (0.5, 6.0)))
    assert (fronted(ranking), ranking.knee.number) == ({0}, 0)


def test_equal_points_are_both_on_the_front_and_the_lower_number_is_the_knee():
    ranking = rank_front(AIMS, trials((0.1, 9.0), (0.1, 9.0)))
    assert (fronted(ranking), ranking.knee.number) == ({0, 1}, 0)


@pytest.mark.parametrize("unsound", [math.nan, math.inf, -math.inf, None])
def test_a_point_without_one_of_the_values_does_not_compete(unsound):
    ranking = rank_front(AIMS, trials((0.1, unsound), (0.2, 5.0)))
    assert [group.point for group in ranking.ranked] == [1]
    (left,) = ranking.unranked
    assert left.number == 0
    assert left.reason.startswith("no metric: speed" if unsound is None else "diverged: ")


def test_what_did_not_succeed_is_listed_once():
    failed = Scored(2, 2, {}, State.FAILED, Reason.ERROR, message="ValueError: no")
    ranking = rank_front(AIMS, [*trials((0.1, 1.0), (0.2, 5.0)), failed])
    assert [(trial.number, trial.reason) for trial in ranking.unranked] == [(2, "failed: ValueError: no")]


def test_a_broken_constraint_of_any_objective_keeps_a_point_off_the_front():
    aims = (AIMS[0], replace(AIMS[1], constraints=[Bound("memory", "<=", 8)]))
    scored = trials((0.1, 9.0), (0.2, 5.0))
    scored[0] = replace(scored[0], constrained={"memory": 16.0})
    scored[1] = replace(scored[1], constrained={"memory": 8.0})
    ranking = rank_front(aims, scored)
    assert fronted(ranking) == {1}
    assert (ranking.ranked[1].feasible, ranking.ranked[1].note) == (
        False,
        "constraint memory <= 8 broken: 16.0",
    )


def test_without_a_feasible_point_there_is_no_front():
    aims = (replace(AIMS[0], constraints=[Bound("loss", "<", 0)]), AIMS[1])
    ranking = rank_front(aims, trials((0.1, 9.0), (0.2, 5.0)))
    assert (ranking.front, ranking.knee, len(ranking.ranked)) == ((), None, 2)


def test_replicates_of_a_point_are_one_group_in_every_objective():
    aims = tuple(replace(aim, replicates=2) for aim in AIMS)
    ranking = rank_front(aims, trials((0.1, 1.0), (0.3, 3.0), (0.2, 5.0), (0.4, 9.0), replicates=2))
    first, second = ranking.ranked
    assert {(0, 1), (2, 3)} == {first.trials, second.trials}
    by_point = {group.point: group.objectives for group in ranking.ranked}
    assert [f.mean for f in by_point[1]] == pytest.approx([0.3, 7.0])
    assert [f.n for f in by_point[1]] == [2, 2]
    assert by_point[1][1].sd == pytest.approx(math.sqrt(8))
    lost = rank_front(aims, trials((0.1, 1.0), (0.3, math.nan), (0.2, 5.0), (0.4, 9.0), replicates=2))
    assert [group.point for group in lost.ranked] == [1]
    assert {trial.number for trial in lost.unranked} == {0, 1}


def test_nothing_to_rank_is_no_error():
    ranking = rank_front(AIMS, [])
    assert (ranking.ranked, ranking.front, ranking.knee) == ((), (), None)


def test_a_group_of_several_objectives_is_written_with_all_of_them():
    written = rank_front(AIMS, trials((0.1, 9.0))).ranked[0].to_dict()
    assert (written["on_front"], written["is_knee"], written["p"]) == (True, True, None)
    assert written["objectives"] == [
        {"metric": "loss", "value": 0.1, "mean": 0.1, "sd": None, "n": 1, "ci95": None},
        {"metric": "speed", "value": 9.0, "mean": 9.0, "sd": None, "n": 1, "ci95": None},
    ]


def test_distances_take_values_of_any_size():
    huge = distances([(1.7e308, 1e-300), (-1.7e308, 2e-300), (0.0, 1e-300)], [0, 1, 2], ["minimize"] * 2)
    assert huge == pytest.approx([1.0, 1.0, 0.5])


class Counted(float):
    """A number that counts how often it is compared."""

    compared = 0

    def __rmul__(self, other):
        return Counted(float(other) * float(self))

    def __le__(self, other):
        Counted.compared += 1
        return float(self) <= float(other)

    def __lt__(self, other):
        Counted.compared += 1
        return float(self) < float(other)


def compared(count, objectives):
    """Return how many comparisons it takes when all of so many points are on the front."""
    Counted.compared = 0
    chance = random.Random(0)
    first = [[chance.randrange(10**6) for _ in range(objectives - 1)] for _ in range(count)]
    rows = [[Counted(value) for value in (*row, -sum(row))] for row in first]
    assert len(pareto_front(rows, ["minimize"] * objectives)) == count
    return Counted.compared


@pytest.mark.parametrize(("objectives", "times"), [(2, 2.5), (3, 2.6), (4, 2.9)])
def test_a_front_takes_little_more_than_twice_as_long_for_twice_the_points(objectives, times):
    assert 0 < compared(1000, objectives) < times * compared(500, objectives)


@given(
    st.integers(1, 5).flatmap(lambda width: st.lists(st.tuples(*[st.integers(0, 3)] * width), max_size=40))
)
@settings(max_examples=60)
def test_the_front_of_any_objectives_agrees_with_its_definition(rows):
    def beats(one, other):
        return one != other and all(a <= b for a, b in zip(one, other, strict=True))

    expected = [at for at, row in enumerate(rows) if not any(beats(other, row) for other in rows)]
    goals = ["minimize"] * (len(rows[0]) if rows else 1)
    assert pareto_front(rows, goals) == expected


pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


@given(pairs)
def test_the_front_of_two_objectives_agrees_with_its_definition(rows):
    def beats(one, other):
        return one != other and one[0] <= other[0] and one[1] >= other[1]

    expected = [at for at, row in enumerate(rows) if not any(beats(other, row) for other in rows)]
    assert pareto_front(rows, ["minimize", "maximize"]) == expected


values = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, 1.0, math.nan, math.inf]), st.none())


@settings(deadline=None)
@given(
    st.lists(st.tuples(values, values, values), max_size=14),
    st.lists(st.sampled_from(["minimize", "maximize"]), min_size=3, max_size=3),
)
def test_the_front_agrees_with_its_definition_and_nothing_follows_what_it_beats(rows, goals):
    ranking = rank_front([Aim(f"m{at}", goal) for at, goal in enumerate(goals)], trials(*rows))
    sound = {at: row for at, row in enumerate(rows) if all(v is not None and math.isfinite(v) for v in row)}
    signs = [1 if goal == "minimize" else -1 for goal in goals]

    def beats(one, other):
        pairs = [(s * a, s * b) for s, a, b in zip(signs, sound[one], sound[other], strict=True)]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    expected = {at for at in sound if not any(beats(other, at) for other in sound)}
    assert fronted(ranking) == expected
    order = [group.point for group in ranking.ranked]
    assert sorted(order) == sorted(sound)
    assert len(ranking.unranked) == len(rows) - len(sound)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_nothing_is_ranked_before_what_beats_it(rows):
    ranking = rank_front(AIMS, trials(*((float(a), float(b)) for a, b in rows)))
    order = [rows[group.point] for group in ranking.ranked]
    for place, (loss, speed) in enumerate(order):
        assert not any(a <= loss and b >= speed and (a, b) != (loss, speed) for a, b in order[place + 1 :])
