"""Methods that learn: a rebuilt history gives the same answers, whatever the space is made of."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from airflows.engine.adaptive import setting_of
from airflows.engine.outcomes import outcome_of, violation
from airflows.errors import MissingExtraError, SpecError
from airflows.objective import parse_constraint
from airflows.preview import accelerator_hours
from airflows.ranking import Aim, Scored
from airflows.search import adaptive
from airflows.search.adaptive import Notes, Outcome, Past, Proposal, Sampler, open_sampler, require_packages
from airflows.search.coding import Coding
from airflows.sweepfile import LoadedSweep, sweep_from_mapping
from airflows.trial import State
from airflows.vetting import validate_points

BASE = {
    "experiment_name": "adaptive",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.1, "wd": 0.0, "opt": "adam", "n": 1, "net": {"depth": 1}},
    "timeout_minutes": 60,
}
MIXED: Mapping[str, Any] = {
    "parameters.lr": {"min": 1e-4, "max": 1.0, "log": True},
    "parameters.n": {"min": 1, "max": 64},
    "parameters.wd": {"min": 0.0, "max": 0.5, "step": 0.1},
    "parameters.width": {"min": 16, "max": 1024, "count": 7, "log": True},
    "parameters.net": [{"depth": 1}, {"depth": 2, "skip": [1, 2]}],
    "parameters.opt": ["sgd", "adam"],
    "parameters.momentum": {"min": 0.0, "max": 0.99, "when": {"parameters.opt": "sgd"}},
    "parameters.a, parameters.b": [["x", 1], ["y", 2], ["z", 3]],
    "env_variables.RATE": {"min": 0.5, "max": 2.5},
    "parameters.fixed": 3,
}
NUMBERS: Mapping[str, Any] = {
    "parameters.lr": {"min": 1e-4, "max": 1.0, "log": True},
    "parameters.n": {"min": 1, "max": 9},
    "parameters.batch": [64, 16, 32],
}
METHODS = [
    "tpe",
    "cmaes",
    "nsga2",
    pytest.param("gp", marks=pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")),
]


def load(space: Mapping[str, Any] = MIXED, method: str = "tpe", **more: Any) -> LoadedSweep:
    search = {"method": method, "trials": 80, "seed": 5} | more.pop("search", {})
    tree = {"name": "s", "base": BASE, "space": space, "search": search}
    return sweep_from_mapping(
        {**tree, "objective": {"metric": "loss", "goal": "minimize"}, **more}, directory=Path()
    )


def sampler_of(sweep: LoadedSweep, past: Sequence[Past] = ()) -> Sampler:
    return open_sampler(sweep.space, sweep.base.tree, setting_of(sweep.spec), past)


def value(overrides: Mapping[str, Any]) -> float:
    return abs(overrides["parameters.lr"] - 0.01) + 0.01 * overrides["parameters.n"]


def told_again(sweep: LoadedSweep, asked: Sequence[Proposal], outcomes: Mapping[int, Outcome]) -> Sampler:
    """Return a new sampler that was told what is kept: points with their notes, through JSON, and ends."""
    sampler = sampler_of(sweep)
    for proposal in asked:
        kept = json.loads(json.dumps([proposal.overrides, proposal.notes.trial, proposal.notes.study]))
        sampler.add(kept[0], Notes(kept[1], kept[2]))
    for number, outcome in outcomes.items():
        sampler.finish(number, outcome)
    return sampler


@pytest.mark.parametrize("method", METHODS)
def test_a_rebuilt_history_gives_the_same_answers_as_one_that_was_kept(method: str) -> None:
    # A Gaussian process takes its time, and learns from complete trials only.
    is_slow = method == "gp"
    few = {key: NUMBERS[key] for key in ("parameters.lr", "parameters.n")}
    sweep = load({"cmaes": NUMBERS, "gp": few}.get(method, MIXED), method)
    known = [point.overrides for point in sweep.expansion.points()]
    kept, asked, outcomes = sampler_of(sweep), list[Proposal](), dict[int, Outcome]()
    chance = random.Random(0)
    for number in range(len(known) + (5 if is_slow else 14)):
        if number < len(known):
            asked.append(Proposal(known[number], kept.add(known[number])))
        else:
            again = told_again(sweep, asked, outcomes)
            asked.append(kept.ask())

            assert again.ask() == asked[-1]
        if number >= 3:
            # Three run at any time, and they end in any order.
            ended = chance.choice([n for n in range(number + 1) if n not in outcomes])
            kind = 1.0 if is_slow else chance.random()
            outcomes[ended] = Outcome("complete", (value(asked[ended].overrides),))
            if kind < 0.1:
                outcomes[ended] = Outcome(chance.choice(["failed", "diverged"]))
            elif kind < 0.2:
                outcomes[ended] = Outcome("stopped", step=3, score=2.0)
            kept.finish(ended, outcomes[ended])


def test_what_is_proposed_is_in_the_space_and_survives_the_ledger() -> None:
    sweep = load()
    coding = Coding(sweep.space, sweep.base.tree)
    sampler = sampler_of(sweep)
    seen: set[str] = set()
    for number in range(40):
        overrides = sampler.ask().overrides
        sampler.finish(number, Outcome("complete", (value(overrides),)))
        stored = json.loads(json.dumps(overrides))

        assert sweep.space.contains(stored)
        assert coding.translated(stored, {}) == overrides
        assert ("parameters.momentum" in overrides) == (overrides["parameters.opt"] == "sgd")
        assert isinstance(overrides["env_variables.RATE"], str)
        seen.add(json.dumps(overrides["parameters.net"]))
    assert len(seen) == 2


def test_points_that_run_are_not_proposed_again() -> None:
    sweep = load({"parameters.lr": {"min": 0.0, "max": 1.0}})
    sampler = sampler_of(sweep)
    for number in range(20):
        lr = sampler.ask().overrides["parameters.lr"]
        sampler.finish(number, Outcome("complete", ((lr - 0.3) ** 2,)))
    running = [sampler.ask().overrides["parameters.lr"] for _ in range(8)]

    assert len(set(running)) == 8


def test_each_proposal_has_a_seed_of_its_own() -> None:
    sweep = load({"parameters.lr": {"min": 0.0, "max": 1.0}}, search={"warm_start": ["x"]})
    first, other = sampler_of(sweep), sampler_of(load(sweep.spec.space, search={"seed": 6}))
    made = [first.ask().overrides["parameters.lr"] for _ in range(5)]

    assert len(set(made)) == 5
    assert other.ask().overrides["parameters.lr"] != made[0]


def test_the_past_of_another_sweep_is_learned_from() -> None:
    sweep = load({"parameters.lr": {"min": 0.0, "max": 1.0}})
    lrs = [place / 40 for place in range(41)]
    past = [Past({"parameters.lr": lr}, Outcome("complete", ((lr - 0.3) ** 2,))) for lr in lrs]
    made = [sampler_of(sweep, past).ask().overrides["parameters.lr"]]

    assert abs(made[0] - 0.3) < 0.2


def test_points_of_another_base_are_translated() -> None:
    sweep = load({"parameters.lr": {"min": 0.0, "max": 1.0}, "parameters.opt": ["adam", "sgd"]})
    coding = Coding(sweep.space, sweep.base.tree)
    other = {"parameters": {"opt": "sgd", "n": 8}}

    assert coding.translated({"parameters.lr": 0.5}, other) == {
        "parameters.lr": 0.5,
        "parameters.opt": "sgd",
    }
    assert coding.translated({"parameters.lr": 0.5, "parameters.n": 1}, other) is not None
    assert coding.translated({"parameters.lr": 0.5, "parameters.n": 2}, other) is None
    assert coding.translated({"parameters.lr": 2.0}, other) is None
    assert coding.translated({}, {"parameters": {"opt": "sgd"}}) is None


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"parameters.opt": ["sgd", "adam"]}, "knows numbers only"),
        ({"parameters.a, parameters.b": [[1, 2], [3, 4]]}, "knows numbers only"),
        (
            {
                "parameters.n": [1, 2],
                "parameters.lr": {"min": 0.0, "max": 1.0, "when": {"parameters.n": 2}},
            },
            "conditions",
        ),
    ],
)
def test_cma_es_refuses_what_is_no_number(space: Mapping[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        load(space, "cmaes")
    assert "space." in (caught.value.field or "")


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "find_spec", lambda _name: None)

    with pytest.raises(MissingExtraError, match="tpe needs optuna, which is not installed") as caught:
        require_packages("tpe")
    assert caught.value.hint == "Run: pip install 'airflows[optuna]'"
    with pytest.raises(MissingExtraError, match="optuna and cmaes and scipy") as caught:
        require_packages("cmaes")
    with pytest.raises(MissingExtraError) as caught:
        require_packages("gp")
    assert caught.value.hint == "Run: pip install 'airflows[optuna]' torch"


def test_the_points_known_in_advance_are_rows_and_random_draws() -> None:
    rows = [{"parameters.lr": 0.5}]
    space = {"parameters.lr": {"min": 0.0, "max": 1.0}}
    sweep = load(space, include=rows)
    drawn = load(space, "random", include=rows)
    points = [point.overrides for point in sweep.expansion.points()]

    assert (len(points), sweep.expansion.known, sweep.expansion.count()) == (10, 10, 80)
    assert points == [point.overrides for point in drawn.expansion.points()][:10]
    assert load(space, search={"warm_start": ["x"]}, include=rows).expansion.known == 1


def test_what_may_be_chosen_is_checked_before_anything_runs() -> None:
    with pytest.raises(SpecError, match="A point of the space cannot run"):
        validate_points(load({"compute.num_accelerators": {"min": 0, "max": 8}, **NUMBERS}))
    validate_points(load({"compute.num_accelerators": {"min": 1, "max": 4}, **NUMBERS}))


def test_the_dearest_point_counts_for_all() -> None:
    sweep = load({"compute.num_accelerators": {"min": 1, "max": 4}, **NUMBERS})

    assert accelerator_hours(sweep) == 80 * 4


def test_a_method_that_does_not_learn_has_no_use_for_earlier_sweeps() -> None:
    with pytest.raises(SpecError, match="does not learn from earlier sweeps"):
        load(NUMBERS, "random", search={"warm_start": ["x"]})


LOSS = Aim("loss", "minimize", constraints=[parse_constraint("ms <= 20")])


def member(number: int, state: State = State.SUCCEEDED, **fields: Any) -> Scored:
    return Scored(number, 0, {}, state, **{"value": 1.0, "step": 5, "constrained": {"ms": 10.0}, **fields})


@pytest.mark.parametrize(
    ("members", "outcome"),
    [
        (
            [member(0, value=1.0), member(1, value=3.0)],
            Outcome("complete", (2.0,), violations={"ms <= 20.0": -10}),
        ),
        (
            [member(0, constrained={"ms": 25.0}), member(1)],
            Outcome("complete", (1.0,), violations={"ms <= 20.0": 5}),
        ),
        ([member(0), member(1, State.FAILED, value=None)], Outcome("failed")),
        ([member(0), member(1, value=None, raw="NaN")], Outcome("diverged")),
        ([member(0), member(1, constrained={})], Outcome("diverged")),
        ([member(0, value=None)], Outcome("failed")),
        ([member(0, State.STOPPED, value=2.0), member(1)], Outcome("stopped", step=5, score=1.5)),
        ([member(0, State.STOPPED, value=None, step=None)], Outcome("stopped")),
    ],
)
def test_replicates_become_one_outcome(members: Sequence[Scored], outcome: Outcome) -> None:
    assert outcome_of([LOSS], members) == outcome


def test_several_objectives_need_a_value_each() -> None:
    aims = [Aim("loss", "minimize"), Aim("size", "maximize")]

    assert outcome_of(aims, [member(0, others=(7.0,))]) == Outcome("complete", (1.0, 7.0))
    assert outcome_of(aims, [member(0, others=(None,))]) == Outcome("failed")
    assert outcome_of(aims, [member(0, others=(float("nan"),))]) == Outcome("diverged")


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
def test_a_violation_is_positive_just_where_a_constraint_is_broken(op: str) -> None:
    holds = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "==": "__eq__", "!=": "__ne__"}[op]
    for value_ in (0.0, 0.5, 1.0):
        assert (violation(op, value_, 0.5) <= 0) == getattr(value_, holds)(0.5)
