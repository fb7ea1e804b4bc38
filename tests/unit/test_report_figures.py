"""What the plots of a report are made of: their values, what they leave out, and what they say of it."""

import itertools
import math
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.pareto import rank_front
from airflows.ranking import Aim, Scored, rank
from airflows.report.facts import MOST_CURVES, Curve, Curves, Facts, Goal, Parameter, curve_numbers, spread
from airflows.report.figures import curves, effort, fronts, history, parallel, space
from airflows.report.figures.drawing import Positions, as_markup, label, rounded
from airflows.report.headline import headline
from airflows.scores import Take
from airflows.testing.facts import made_up
from airflows.trial import Reason, State, Trial

LOSS = Aim("loss", "minimize")


def told_of(*points, goal="minimize", replicates=1, parameters=("lr",), **fields):
    """The facts of a sweep whose points came out like this: (value, overrides), None for a failure."""
    scored, trials, number = [], [], 0
    for point, (values, overrides) in enumerate(points):
        for value in values if isinstance(values, list) else [values]:
            state = State.FAILED if value is None else State.SUCCEEDED
            sound = value if value is not None and math.isfinite(value) else None
            raw = "NaN" if value is not None and sound is None else ""
            scored.append(Scored(number, point, overrides, state, value=sound, raw=raw, run_id=f"r{number}"))
            trials.append(
                (Trial("s-1", number, point, 0, state, value=sound, run_id=f"r{number}"), overrides)
            )
            number += 1
    ranking = rank(Aim("loss", goal, replicates=replicates), scored)
    varied = [Parameter(name, (name,)) for name in parameters]
    return Facts(
        "s-1", goals=[Goal("loss", goal)], ranking=ranking, trials=trials, parameters=varied, **fields
    )


def all_figures(facts):
    drawn = [history.history(facts), *fronts.fronts(facts), parallel.parallel(facts)]
    drawn += [space.importance(facts), space.slices(facts), *space.contours(facts), curves.curves(facts)]
    return [*drawn, effort.timeline(facts), effort.cost(facts), effort.failures(facts)]


def trace(figure, name):
    return next(one for one in figure.data if one.get("name") == name)


# Of all figures

SWEEPS = {
    "usual": made_up(60),
    "one trial": made_up(1, failing=0.0),
    "all failed": made_up(12, failing=1.0),
    "replicates": made_up(30, replicates=3),
    "two objectives": made_up(40, objectives=2),
    "nothing ran": Facts("s-1"),
    "no value": told_of((math.nan, {"lr": 1}), (None, {"lr": 2})),
    "huge and odd values": told_of(
        (1e308, {"lr": 10**400, "opt": ["a", {"b": 1}]}),
        (-1e308, {"lr": 1, "opt": True}),
        parameters=("lr", "opt"),
    ),
}


@pytest.mark.parametrize("facts", SWEEPS.values(), ids=SWEEPS)
def test_plotly_takes_every_figure_and_each_says_what_it_shows_or_why_nothing(facts):
    for figure in all_figures(facts):
        go.Figure(figure.to_dict())
        assert bool(figure.data) != bool(figure.why_not)
        assert figure.summary or figure.why_not


@pytest.mark.parametrize("facts", SWEEPS.values(), ids=SWEEPS)
def test_no_number_of_a_figure_is_unsound(facts):
    def check(value):
        if isinstance(value, dict):
            for item in value.values():
                check(item)
        elif isinstance(value, list | tuple):
            for item in value:
                check(item)
        elif isinstance(value, float):
            assert math.isfinite(value)

    for figure in all_figures(facts):
        check(figure.to_dict())


def test_figures_of_many_trials_are_bounded_and_say_so():
    facts = made_up(4000, steps=400)
    for figure in all_figures(facts):
        points = sum(len(one.get("x") or ()) for one in figure.data)
        assert points <= 10_000
    said = {figure.name: figure.note for figure in all_figures(facts)}
    ranked = len(facts.groups)
    assert f"1,500 of {ranked:,} points are drawn" in said["history"]
    assert f"300 of {ranked:,} points are drawn" in said["parallel"]
    assert f"500 of {ranked:,} points are drawn" in said["slices"]
    assert f"200 of {ranked:,} points are used" in said["contour-0"]
    assert f"1,200 of {len(facts.attempts):,} attempts are drawn" in said["timeline"]
    assert "40 of 4,000 trials are shown" in said["curves"]


@given(st.integers(0, 50), st.integers(0, 60))
def test_a_spread_keeps_both_ends_and_no_more_than_asked(count, most):
    found = spread(range(count), most)
    assert len(found) == min(count, most)
    assert found == sorted(set(found))
    if most >= 2 and count:
        assert (found[0], found[-1]) == (0, count - 1)


# History


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30), st.sampled_from(["minimize", "maximize"]))
def test_the_best_so_far_is_that_of_brute_force(values, goal):
    facts = told_of(*[(value, {"lr": at}) for at, value in enumerate(values)], goal=goal)
    groups = sorted(facts.groups, key=lambda group: min(group.trials))
    best = min if goal == "minimize" else max
    found = dict(history.best_so_far(groups, facts.goals[0]))
    running = None
    for at in range(len(values)):
        running = found.get(at, running)
        assert running == best(values[: at + 1])


def test_history_draws_points_by_trial_and_the_line_of_the_best_up_to_the_last_one():
    figure = history.history(told_of((3.0, {"lr": 1}), (5.0, {"lr": 2}), (1.0, {"lr": 3}), (2.0, {"lr": 4})))
    assert (trace(figure, "points")["x"], trace(figure, "points")["y"]) == (
        [0, 1, 2, 3],
        [3.0, 5.0, 1.0, 2.0],
    )
    assert trace(figure, "best so far")["x"] == [0, 2, 3]
    assert trace(figure, "best so far")["y"] == [3.0, 1.0, 1.0]
    assert "went from 3 to 1, reached at trial 2. 4 points are ranked." in figure.summary


def test_a_point_that_breaks_a_constraint_is_drawn_apart_and_is_never_the_best_so_far():
    facts = told_of((3.0, {"lr": 1}), (1.0, {"lr": 2}))
    broken = tuple(replace(group, feasible=group.value > 2) for group in facts.ranking.ranked)
    figure = history.history(replace(facts, ranking=replace(facts.ranking, ranked=broken)))
    assert trace(figure, "breaks a constraint")["y"] == [1.0]
    assert set(trace(figure, "best so far")["y"]) == {3.0}


def test_trials_without_a_value_are_counted_not_drawn():
    figure = history.history(told_of((3.0, {"lr": 1}), (None, {"lr": 2}), (math.nan, {"lr": 3})))
    assert trace(figure, "points")["y"] == [3.0]
    assert "2 trials are not ranked and not drawn." in figure.note


def test_replicates_are_one_point_at_their_first_trial():
    figure = history.history(told_of(([1.0, 3.0], {"lr": 1}), ([5.0, 7.0], {"lr": 2}), replicates=2))
    assert trace(figure, "points")["x"] == [0, 2]
    assert trace(figure, "points")["y"] == [2.0, 6.0]
    assert "all its replicates" in figure.note


def test_each_of_several_objectives_has_a_row():
    figure = history.history(made_up(40, objectives=2))
    assert figure.layout["yaxis"]["title"]["text"] == "val/loss"
    assert figure.layout["yaxis2"]["title"]["text"] == "latency_ms"
    assert figure.layout["yaxis"]["domain"][0] >= figure.layout["yaxis2"]["domain"][1]


# Axes


def test_a_logarithmic_parameter_lies_on_a_logarithmic_axis_unless_it_reaches_zero():
    lr = Parameter("lr", ("lr",), is_log=True)
    positions = Positions.of(lr, [{"lr": 0.001}, {"lr": 0.1}])
    assert [positions.place({"lr": value}) for value in (0.001, 0.01)] == pytest.approx([-3, -2])
    assert positions.axis()["type"] == "log"
    assert "type" not in Positions.of(lr, [{"lr": 0.0}, {"lr": 0.1}]).axis()


def test_categories_have_an_order_numbers_before_words():
    mixed = Parameter("p", ("p",))
    positions = Positions.of(mixed, [{"p": "b"}, {"p": 10}, {"p": 9}, {"p": "a"}, {"p": True}, {}])
    assert list(positions.categories) == ["9", "10", "a", "b", "true"]
    assert positions.place({"p": "a"}) == 2
    assert positions.value({}) is None


def test_coupled_keys_are_one_parameter_and_absent_where_one_is():
    both = Parameter("batch, steps", ("batch", "steps"))
    assert both.value({"batch": 32, "steps": 4}) == "32, 4"
    assert both.value({"batch": 32}) is None


def test_text_for_plotly_is_shown_as_it_is_and_hides_passwords():
    assert label("<b>&") == "&lt;b&gt;&amp;"
    assert as_markup("a<br>") == "a&lt;br&gt;"
    assert "hunter2" not in label("postgresql://me:hunter2@db/x")
    assert (rounded(0.123456789), rounded(math.nan), rounded(math.inf)) == (0.123457, None, None)


# Parallel coordinates


def test_lines_go_from_the_lowest_to_the_highest_of_each_axis():
    figure = parallel.parallel(
        told_of((3.0, {"lr": 10, "opt": "a"}), (1.0, {"lr": 20, "opt": "b"}), parameters=("lr", "opt"))
    )
    assert figure.layout["xaxis"]["ticktext"] == ["lr", "opt", "loss"]
    lines = {tuple(one["y"][:3]) for one in figure.data}
    assert lines == {(0.0, 0.0, 1.0), (1.0, 1.0, 0.0)}
    # The best is drawn last, on top, and strongest.
    assert tuple(figure.data[-1]["y"][:3]) == (1.0, 1.0, 0.0)


def test_a_parameter_that_a_point_lacks_is_beneath_its_axis():
    figure = parallel.parallel(
        told_of(
            (3.0, {"lr": 1, "m": 0.9}), (1.0, {"lr": 2}), (2.0, {"lr": 3, "m": 0.5}), parameters=("lr", "m")
        )
    )
    beneath = [one["y"][1] for one in figure.data if one["y"][1] < 0]
    assert len(beneath) == 1
    assert "not active" in {one["text"] for one in figure.layout["annotations"]}


def test_parameters_that_never_varied_have_no_axis():
    facts = told_of((3.0, {"lr": 1, "w": 5}), (1.0, {"lr": 2, "w": 5}), parameters=("lr", "w"))
    assert [one.name for one in facts.leading_parameters(9)] == ["lr"]


# Importance, slices, contours


def test_importance_is_largest_on_top_and_says_why_where_it_is_unknown():
    figure = space.importance(made_up(60))
    assert (figure.data[0]["y"][-1], figure.data[0]["x"][-1]) == ("lr", 0.61)
    missing = replace(made_up(60), importance=None, importance_note="Optuna is not installed.")
    assert space.importance(missing).why_not == "Optuna is not installed."


def test_a_slice_holds_the_values_over_the_parameter():
    facts = told_of((3.0, {"lr": 1}), (1.0, {"lr": 2}), (2.0, {"lr": 3}))
    (one,) = space.slices(facts).data
    assert sorted(zip(one["x"], one["y"], strict=True)) == [(1, 3.0), (2, 1.0), (3, 2.0)]


def test_few_values_make_a_table_of_means():
    grid = list(itertools.product([1, 2, 3], ["a", "b"]))
    points = [(float(x * 10 + (y == "b")), {"lr": x, "opt": y}) for x, y in grid]
    (figure,) = space.contours(told_of(*points, parameters=("lr", "opt")))
    (heat,) = figure.data
    assert (heat["x"], heat["y"]) == (["1", "2", "3"], ["a", "b"])
    assert heat["z"] == [[10, 20, 30], [11, 21, 31]]


def test_a_surface_is_near_the_points_that_it_is_guessed_from():
    points = [(x + y, {"a": float(x), "b": float(y)}) for x, y in itertools.product(range(15), range(15))]
    (figure,) = space.contours(told_of(*points, parameters=("a", "b")))
    surface = figure.data[0]
    assert surface["type"] == "contour"
    for row, y in zip(surface["z"], surface["y"], strict=True):
        for value, x in zip(row, surface["x"], strict=True):
            assert value == pytest.approx(x + y, abs=4)
    flat = [value for row in surface["z"] for value in row]
    assert min(flat) >= 0
    assert max(flat) <= 28


def test_a_higher_value_is_better_where_the_goal_says_so():
    grid = [(float(x * y), {"a": x, "b": y}) for x, y in itertools.product([1, 2], [1, 2])]
    assert space.contours(told_of(*grid, parameters=("a", "b"), goal="maximize"))[0].data[0]["reversescale"]
    assert not space.contours(told_of(*grid, parameters=("a", "b")))[0].data[0]["reversescale"]


def test_words_of_many_kinds_make_no_surface():
    points = [(float(at), {"a": f"w{at}", "b": at / 7}) for at in range(20)]
    (figure,) = space.contours(told_of(*points, parameters=("a", "b")))
    assert figure.why_not


# Curves


def test_a_thinned_curve_keeps_its_ends_and_extremes_in_order():
    points = [(step, math.sin(step)) for step in range(5000)]
    points[1234] = (1234, 99.0)
    found = curves.thinned(points)
    assert len(found) <= curves.MOST_POINTS
    assert found == sorted(found)
    assert (found[0], found[-1]) == (points[0], points[-1])
    assert (1234, 99.0) in found


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=400))
def test_thinning_never_invents_a_value(values):
    points = list(enumerate(values))
    found = curves.thinned(points, 20)
    assert set(found) <= set(points)
    assert max(found, key=lambda p: p[1])[1] == max(values)


def test_values_that_are_no_numbers_are_left_out_of_a_curve():
    points = [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]
    facts = replace(told_of((1.0, {"lr": 1})), curves=Curves([Curve(0, points)]))
    (one,) = curves.curves(facts).data
    assert one["x"] == [0, 3]


def test_the_winners_curve_is_on_top():
    figure = curves.curves(made_up(30))
    assert figure.data[-1]["name"] == f"trial {made_up(30).best_trial}, rank 1"
    assert figure.data[-1]["line"]["width"] > figure.data[0]["line"]["width"]


def test_curves_are_read_of_the_best_and_of_some_from_all_over():
    facts = made_up(500)
    numbers = curve_numbers(facts.ranking, [trial for trial, _ in facts.trials])
    assert len(numbers) == len(set(numbers)) == MOST_CURVES
    assert numbers[0] == facts.best_trial
    assert {min(group.trials) for group in facts.groups[:15]} <= set(numbers)
    pending = [replace(trial, state=State.PENDING, run_id="") for trial, _ in facts.trials]
    assert curve_numbers(None, pending) == []


# Pareto front


def test_the_front_is_that_of_brute_force_and_its_knee_is_marked():
    facts = made_up(120, objectives=2)
    (figure,) = fronts.fronts(facts)
    rows = [tuple(one.value for one in group.objectives) for group in facts.groups]
    best = {row for row in rows if not any(a != row and a[0] <= row[0] and a[1] <= row[1] for a in rows)}
    front = trace(figure, "Pareto front")
    assert set(zip(front["x"], front["y"], strict=True)) == {tuple(map(rounded, row)) for row in best}
    assert front["x"] == sorted(front["x"])
    assert len(trace(figure, "best compromise")["x"]) == 1
    assert len(front["x"]) + len(trace(figure, "other points")["x"]) == len(rows)


def test_three_objectives_have_a_figure_for_each_pair():
    aims = [LOSS, Aim("size", "minimize"), Aim("speed", "maximize")]
    scored = [
        Scored(n, n, {"lr": n}, State.SUCCEEDED, value=n, others=(9 - n, float(n % 3))) for n in range(9)
    ]
    facts = Facts("s-1", goals=[Goal(a.metric, a.goal) for a in aims], ranking=rank_front(aims, scored))
    titles = [figure.title for figure in fronts.fronts(facts)]
    assert titles == [
        f"Pareto front: {a} and {b}" for a, b in itertools.combinations(["loss", "size", "speed"], 2)
    ]


def test_one_objective_has_no_front():
    assert fronts.fronts(made_up(20)) == []


# Effort


def test_attempts_that_overlap_in_a_place_are_in_different_rows():
    facts = made_up(200)
    bars, names = effort.lanes([each for each in facts.attempts if each.started_at], facts.made_at)
    assert len(bars) == len(facts.attempts)
    rows = {}
    for attempt, row in bars:
        assert names[row] == f"slurm {attempt.host}"
        rows.setdefault(row, []).append((attempt.started_at, attempt.ended_at))
    for spans in rows.values():
        spans.sort()
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    # No more rows than run at a time in each place.
    busiest = 0
    for place in {each.host for each in facts.attempts}:
        own = [(each.started_at, each.ended_at) for each in facts.attempts if each.host == place]
        busiest += max(sum(a <= at < b for a, b in own) for at, _ in own)
    assert len(names) == busiest


def test_an_attempt_that_still_runs_lasts_until_now():
    facts = made_up(1, failing=0.0)
    running = replace(facts.attempts[-1], ended_at=None, state="running")
    figure = effort.timeline(
        replace(facts, attempts=[running], ended_at=None, made_at=running.started_at + 90)
    )
    assert trace(figure, "running")["x"] == [90_000]


def test_hours_are_those_of_the_attempts_useful_and_lost():
    facts = made_up(300)
    hours = effort.hours_by_use(facts)
    every = sum((each.ended_at - each.started_at) * each.accelerators for each in facts.attempts) / 3600
    assert sum(hours.values()) == pytest.approx(every)
    useful = sum(
        (each.ended_at - each.started_at) * each.accelerators / 3600
        for each in facts.attempts
        if each.state == "succeeded"
    )
    assert hours["useful"] == pytest.approx(useful)
    assert set(hours) == {"useful", "lost: error", "lost: preempted"}


def test_failures_are_counted_by_trials_the_most_common_on_top():
    facts = made_up(300)
    bars = effort.failures(facts).data[0]
    failed = len({each.number for each in facts.attempts if each.reason == Reason.ERROR})
    assert (bars["y"][-1], bars["x"][-1]) == ("1. error", failed)
    assert effort.failures(replace(facts, causes=[])).why_not == "Nothing failed."


def test_the_rule_by_which_values_count_is_told():
    facts = told_of((3.0, {"lr": 1}), (1.0, {"lr": 2}), is_complete=True)
    for rule, words in {"last": "loss:", "best": "by its best value", "at_step 5": "at step 5"}.items():
        assert words in headline(replace(facts, goals=[Goal("loss", "minimize", rule)]))
    assert Take.of({"mean_of_last": 5}).rule == "mean_of_last 5"


def test_attempts_at_a_time_are_those_that_overlap_and_an_unended_one_lasts_as_long_as_the_sweep():
    facts = made_up(8, failing=0.0)
    one_by_one = [
        replace(each, host=f"n{at}", started_at=1000.0 + 10 * at, ended_at=1010.0 + 10 * at)
        for at, each in enumerate(facts.attempts)
    ]
    assert "1 at a time at most" in effort.timeline(replace(facts, attempts=one_by_one)).summary
    lost = replace(one_by_one[0], ended_at=None, state="lost")
    figure = effort.timeline(replace(facts, attempts=[lost], ended_at=1100.0, made_at=9e6))
    assert figure.data[0]["x"] == [100_000]


def test_a_swept_null_is_a_value():
    parameter = Parameter("p", ("p",))
    assert parameter.value({"p": None}) == "null"
    assert parameter.value({}) is None
    assert Positions.of(parameter, [{"p": None}, {"p": 0.1}]).categories == ["0.1", "null"]


def test_near_values_of_parameters_and_near_steps_stay_apart():
    facts = told_of((3.0, {"lr": 1234567}), (1.0, {"lr": 1234568}))
    assert sorted(space.slices(facts).data[0]["x"]) == [1234567, 1234568]
    steps = [(1234567.0, 1.0), (1234568.0, 2.0)]
    drawn = curves.curves(replace(facts, curves=Curves([Curve(0, steps)])))
    assert drawn.data[0]["x"] == [1234567.0, 1234568.0]
