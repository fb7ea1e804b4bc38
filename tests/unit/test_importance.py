"""Which parameters matter, by Optuna's importances on a history of ours."""

from random import Random

import pytest

from airflows.errors import MissingExtraError
from airflows.search import importance
from airflows.search.importance import ENOUGH, Seen, importances

pytest.importorskip("optuna", reason="the importances are Optuna's")


def history(count, loss, *, conditional=False):
    chance = Random(3)
    made = []
    for _ in range(count):
        params = {
            "lr": 10 ** chance.uniform(-5, -1),
            "layers": chance.randint(1, 8),
            "opt": chance.choice(["sgd", "adam"]),
            "fixed": 7,
        }
        if conditional and params["opt"] == "sgd":
            params["momentum"] = chance.uniform(0, 1)
        made.append(Seen(params, [loss(params)]))
    return made


def test_what_decides_has_the_largest_share_and_shares_add_up_to_one():
    found = importances(history(100, lambda p: abs(p["layers"] - 2)), ["minimize"], ["lr"])
    assert next(iter(found.shares)) == "layers"
    assert found.shares["layers"] > 0.8
    assert sum(found.shares.values()) == pytest.approx(1)
    assert (found.points, found.why_not) == (100, "")


def test_the_goal_says_which_points_are_the_best():
    seen = history(100, lambda p: (p["opt"] == "adam") * 10 + p["layers"] / 100)
    up = importances([Seen(s.params, [-s.values[0]]) for s in seen], ["maximize"])
    down = importances(seen, ["minimize"])
    assert up.shares == pytest.approx(down.shares)
    assert importances(seen, ["maximize"]).shares != pytest.approx(down.shares)


def test_what_never_varied_is_left_out():
    assert "fixed" not in importances(history(30, lambda p: p["lr"]), ["minimize"]).shares


def test_a_conditional_parameter_counts_where_it_is_active():
    def loss(params):
        return 5 if params["opt"] == "adam" else abs(params["momentum"] - 0.9)

    found = importances(history(200, loss, conditional=True), ["minimize"])
    assert 0 < found.active["momentum"] < 200
    assert found.active["lr"] == 200
    assert found.shares["momentum"] > max(found.shares["lr"], found.shares["layers"])


def test_values_of_any_kind_are_told_apart():
    seen = [Seen({"a": [1, [2]] if at % 2 else None, "b": at % 3 == 0}, [at % 2]) for at in range(40)]
    assert next(iter(importances(seen, ["minimize"]).shares)) == "a"


def test_several_objectives_ask_what_leads_to_the_front():
    chance = Random(5)
    seen = []
    for _ in range(120):
        x, y, idle = (chance.uniform(0, 1) for _ in range(3))
        seen.append(Seen({"x": x, "y": y, "idle": idle}, [x + y, (1 - x) + y]))
    assert next(iter(importances(seen, ["minimize", "minimize"]).shares)) == "y"


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ([], "There are 0 ranked points"),
        (history(ENOUGH - 1, lambda p: p["lr"]), f"fewer than {ENOUGH}"),
        ([Seen({"lr": 0.1}, [float(at)]) for at in range(20)], "No parameter varied"),
        ([Seen({"lr": float(at)}, [1.0]) for at in range(20)], "came out the same"),
    ],
)
def test_too_little_to_say_anything_is_said(seen, why):
    found = importances(seen, ["minimize"])
    assert (found.shares, found.points) == ({}, len(seen))
    assert why in found.why_not


def test_the_same_history_gives_the_same_shares():
    seen = history(60, lambda p: p["lr"])
    assert importances(seen, ["minimize"], ["lr"]) == importances(seen, ["minimize"], ["lr"])


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importance, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="Optuna") as caught:
        importances([], ["minimize"])
    assert "airflows[optuna]" in caught.value.hint


def test_documents_show_keys_with_their_shares():
    found = importances(history(100, lambda p: p["layers"]), ["minimize"]).to_dict()
    assert found["parameters"][0]["key"] == "layers"
    assert {*found["parameters"][0]} == {"key", "share", "points"}
    assert (found["points"], found["why_not"]) == (100, None)
