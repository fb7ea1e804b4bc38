"""What a rule would have done to curves that are known, and which settings are refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from airflows.errors import SpecError
from airflows.stopping.curves import Score
from airflows.stopping.replay import Curve, replay
from airflows.stopping.setting import Setting, setting_of
from airflows.sweepfile import sweep_from_mapping

LOSS = {"metric": "loss", "goal": "minimize"}
BASE = {
    "experiment_name": "demo",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.01},
}
OBJECTIVE = {"metric": "loss", "goal": "minimize"}


def curves(*ends, steps=10):
    return [
        Curve(n, n, [Score(step, end) for step in range(1, steps + 1)], accelerator_s=100.0)
        for n, end in enumerate(ends)
    ]


def spec(**fields):
    tree = {"name": "demo", "base": BASE, "space": {"parameters.lr": [0.1, 0.2]}, **fields}
    return sweep_from_mapping(tree, directory=Path()).spec


def test_steps_and_hours_after_a_stop_are_saved():
    done = replay(Setting("asha", **LOSS, min_steps=4), curves(0.1, 0.5), [0])

    assert list(done.stops) == [1]
    assert (done.steps, done.steps_saved, done.share_saved) == (20, 6, 0.3)
    assert (done.accelerator_s, done.accelerator_s_saved) == (200.0, 60.0)
    assert done.lost == []


def test_a_winner_that_began_slowly_is_lost():
    late = Curve(2, 2, [Score(step, 9.0 if step < 6 else 0.0) for step in range(1, 11)])

    assert replay(Setting("asha", **LOSS, min_steps=4), [*curves(0.1, 0.5), late], [2]).lost == [2]


def test_what_ends_where_it_would_be_stopped_saves_nothing():
    done = replay(Setting("asha", **LOSS, min_steps=10), curves(0.1, 0.5), [0])

    assert (done.stops, done.steps_saved) == ({}, 0)


def test_what_is_no_number_ends_a_trial_before_it_is_compared():
    diverged = Curve(0, 0, [Score(1, 0.0), Score(2, float("nan")), Score(9, 0.0)])
    done = replay(Setting("asha", **LOSS, min_steps=4), [diverged, *curves(0.3, 0.5)[1:]], [1])

    assert {number: stop.step for number, stop in done.stops.items()} == {0: 2}


def test_replicates_that_were_added_to_a_winner_are_not_compared():
    good, bad = curves(0.1, 0.5)
    added = replace(curves(0.9)[0], number=2, point=1, is_added=True)
    setting = Setting("asha", **LOSS, min_steps=4)

    assert list(replay(setting, [good, bad, added]).stops) == [1]
    assert list(replay(setting, [good, bad, replace(added, is_added=False)]).stops) == [1, 2]


def test_no_curves_save_nothing():
    done = replay(Setting("asha", **LOSS), [Curve(0, 0, [])])

    assert (done.trials, done.share_saved) == (0, 0.0)


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        ({"method": "asha", "steps": 3}, "stop.method asha has no steps."),
        ({"method": "hyperband"}, "stop.method hyperband needs max_steps."),
        ({"method": "patience"}, "stop.method patience needs steps."),
        ({"method": "threshold"}, "stop.method threshold needs worse_than."),
        ({"min_steps": 3}, "stop without a method has no min_steps."),
        ({"method": "asha", "min_steps": 9, "max_steps": 9}, "max_steps must be larger than min_steps."),
        ({"method": "asha", "metric": "acc"}, "No objective says which value of acc is better."),
    ],
)
def test_keys_that_do_not_go_together_are_refused(stop, words):
    with pytest.raises(SpecError) as caught:
        spec(stop=stop, objective=OBJECTIVE)

    assert caught.value.message == words


def test_a_rule_needs_a_metric_and_mlflow():
    with pytest.raises(SpecError, match="needs a metric"):
        spec(stop={"method": "asha"})
    with pytest.raises(SpecError, match=r"tracking\.uri is none"):
        spec(stop={"method": "asha"}, objective=OBJECTIVE, tracking={"uri": "none"})


def test_a_rule_on_another_metric_has_a_goal_of_its_own():
    made = setting_of(
        spec(
            stop={"method": "median", "metric": "acc", "goal": "max"}, objective=OBJECTIVE | {"take": "best"}
        )
    )

    assert (made.metric, made.goal, made.takes_best, made.after_trials) == ("acc", "maximize", False, 5)


def test_without_a_rule_only_what_is_no_number_stops_a_trial():
    assert setting_of(spec(objective=OBJECTIVE)) == Setting("nan", **LOSS)
    assert setting_of(spec(objective=OBJECTIVE, stop={"nan": False})) is None
    assert setting_of(spec()) is None
