"""`airflows.plan`, `airflows.run(plan=…)` and `airflows.add` from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import airflows

BASE = {
    "experiment_name": "lr",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "parameters": {"lr": 0.1},
}


def sweep(directory: Path, *lrs: float, **fields: Any) -> airflows.Sweep:
    return airflows.Sweep(
        name="lr",
        base=BASE,
        directory=directory,
        space={"parameters.lr": list(lrs)},
        tracking={"uri": "none"},
        **fields,
    )


@pytest.mark.usefixtures("home")
def test_only_what_was_planned_is_run(tmp_path: Path) -> None:
    planned = airflows.plan(sweep(tmp_path, 0.1, 0.2))
    planned.save(tmp_path / "plan.json")

    with pytest.raises(airflows.AirflowsError, match=r"limits.concurrent was not there, and is 1"):
        airflows.run(sweep(tmp_path, 0.1, 0.2, limits={"concurrent": 1}), plan=tmp_path / "plan.json")
    for plan in (tmp_path / "plan.json", planned.hash[:8]):
        assert airflows.run(sweep(tmp_path, 0.1, 0.2), plan=plan).state == "succeeded"


@pytest.mark.usefixtures("home")
def test_points_are_added_and_a_plan_is_no_plan_of_an_edited_sweep(tmp_path: Path) -> None:
    first = airflows.run(sweep(tmp_path, 0.1, 0.2))
    edited = sweep(tmp_path, 0.2, 0.3)

    for _ in range(2):
        results = airflows.add(first.sweep, edited)
        assert (results.sweep, results.state) == (first.sweep, "succeeded")
        assert [dict(t.overrides) for t in results.trials] == [
            {"parameters.lr": lr} for lr in (0.1, 0.2, 0.3)
        ]

    planned = airflows.plan(edited)
    with pytest.raises(airflows.AirflowsError, match="so it is not what the plan says"):
        airflows.run(edited, plan=planned.hash)
    assert airflows.run(edited, plan=planned.hash, new=True).sweep != first.sweep


@pytest.mark.usefixtures("home")
def test_the_sweep_of_an_instance_is_found_by_its_new_file(tmp_path: Path) -> None:
    """A scheduled sweep that was edited is attached to by the next try of its flow run."""
    first = airflows.run(sweep(tmp_path, 0.1), instance="monday")
    airflows.add(first.sweep, sweep(tmp_path, 0.2))

    assert airflows.run(sweep(tmp_path, 0.2), instance="monday").sweep == first.sweep
    assert airflows.run(sweep(tmp_path, 0.2), instance="tuesday").sweep != first.sweep
