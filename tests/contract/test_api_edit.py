"""`airflows.plan`, `airflows.run(plan=…)` and `airflows.add` from Python."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import airflows
from airflows.engine import operations
from airflows.engine.editing import adding
from airflows.engine.site import open_site
from airflows.engine.unmoved import require_same_backend

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

    with pytest.raises(airflows.AirflowsError, match="was edited"):
        airflows.plan(edited)
    planned = airflows.plan(edited, new=True)
    with pytest.raises(airflows.AirflowsError, match="was edited"):
        airflows.run(edited, plan=planned.hash)
    assert airflows.run(edited, plan=planned.hash, new=True).sweep != first.sweep


@pytest.mark.usefixtures("home")
def test_the_sweep_of_an_instance_is_found_by_its_new_file(tmp_path: Path) -> None:
    """A scheduled sweep that was edited is attached to by the next try of its flow run."""
    first = airflows.run(sweep(tmp_path, 0.1), instance="monday")
    airflows.add(first.sweep, sweep(tmp_path, 0.2))

    assert airflows.run(sweep(tmp_path, 0.2), instance="monday").sweep == first.sweep
    assert airflows.run(sweep(tmp_path, 0.2), instance="tuesday").sweep != first.sweep


@pytest.mark.usefixtures("home")
def test_a_plan_of_swept_code_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(name)
    source = {"type": "snapshot", "snapshot": {"root_path": "a"}}
    swept = airflows.Sweep(
        name="lr",
        base={**BASE, "code_source": source},
        directory=tmp_path,
        space={"code_source.snapshot.root_path": ["a", "b"]},
        tracking={"uri": "none"},
    )

    with pytest.raises(airflows.AirflowsError, match=r"code_source.snapshot.root_path differs"):
        airflows.plan(swept)


@pytest.mark.usefixtures("home")
def test_what_a_start_would_refuse_of_a_sweep_that_is_there_has_no_plan(tmp_path: Path) -> None:
    airflows.run(sweep(tmp_path, 0.1))

    with pytest.raises(airflows.AirflowsError, match=r"the file differs from .* limits"):
        airflows.plan(sweep(tmp_path, 0.1, limits={"concurrent": 1}))
    airflows.plan(sweep(tmp_path, 0.1, limits={"concurrent": 1}), new=True)


def test_every_start_of_a_named_sweep_is_that_one_and_after_an_edit_it_is_said(
    home: Path, tmp_path: Path
) -> None:
    before, after = sweep(tmp_path, 0.1).loaded, sweep(tmp_path, 0.1, 0.2).loaded
    first = operations.start(before, home=home, instance="monday").row.id
    assert operations.start(before, home=home, instance="monday").row.id == first
    with adding(first, after, home=home) as found:
        found.run()

    with pytest.raises(airflows.AirflowsError, match="was edited"):
        operations.start(before, home=home, instance="monday")
    assert operations.start(after, home=home, instance="monday").row.id == first


def test_what_was_cancelled_with_its_sweep_runs_when_points_are_added(home: Path, tmp_path: Path) -> None:
    row = operations.start(sweep(tmp_path, 0.1, 0.2).loaded, home=home, drive=False).row
    operations.cancel([row.id], home=home)

    with adding(row.id, sweep(tmp_path, 0.1, 0.3).loaded, home=home) as found:
        ended = found.run().row

    assert ended.state == "succeeded"


def test_a_backend_whose_trials_are_in_flight_stays_where_it_is(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ({"type": "local", "root": str(tmp_path / name)} for name in ("one", "other"))
    row = operations.start(sweep(tmp_path, 0.1, backend=one).loaded, home=home).row
    site = open_site(sweep(tmp_path, 0.1, backend=other).loaded, home, row=row)
    with closing(site.ledger):
        require_same_backend(site, row)
        trials = site.ledger.trials(row.id)
        monkeypatch.setattr(type(site.ledger), "trials", lambda *_, **__: trials)
        with pytest.raises(airflows.AirflowsError, match="local, which keeps its files elsewhere"):
            require_same_backend(site, row)
