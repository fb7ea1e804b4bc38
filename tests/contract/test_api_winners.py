"""What the Python API says of a winner, and how it is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import airflows
from airflows.ledger import SweepState
from airflows.testing.crash import Boundaries, World, make_world
from airflows.testing.fake import Script
from airflows.testing.tracker import FakeTracker

LOSSES = dict(enumerate([1.0, 1.2, 1.1, 1.35, 9.0, 9.2]))
ONE = {
    "replicates": {"key": "parameters.seed", "values": [0, 1]},
    "objective": {"metric": "loss", "goal": "minimize"},
}
TWO = {"objectives": [{"metric": "loss", "goal": "minimize"}, {"metric": "loss", "goal": "maximize"}]}


@pytest.fixture
def ended(tmp_path: Path) -> Callable[..., tuple[World, airflows.Results]]:
    """Run a sweep whose losses are known, and return its results."""

    def run(**tree: object) -> tuple[World, airflows.Results]:
        world = make_world(tmp_path, scripts=lambda _job: Script(seconds=360), tree=tree)
        world.tracker = FakeTracker(values=LOSSES)
        row = world.drive(Boundaries(), dead_for_sure=True)
        assert row.state is SweepState.SUCCEEDED
        world.close()
        return world, airflows.attach(row.id, home=world.home)

    return run


def test_results_tell_who_may_be_as_good_and_what_would_tell(ended: Callable[..., object]) -> None:
    _, results = ended(**ONE)
    assert [group.separable_from_winner for group in results.ranked] == [None, False, True]
    verdict = results.verdict
    assert [group.rank for group in verdict.inseparable] == [2]
    advice = verdict.advice
    # Each trial took a tenth of an hour on one accelerator.
    assert advice.accelerator_hours == pytest.approx(advice.trials / 10, rel=0.02)
    assert (results.knee, results.front) == (None, ())


def test_results_of_two_objectives_have_a_front_and_no_winner(ended: Callable[..., object]) -> None:
    _, results = ended(**TWO)
    assert (results.best, results.verdict) == (None, None)
    assert [group.on_front for group in results.ranked] == [True] * 3
    assert results.knee.group is results.front[0]
    assert [one.metric for one in results.knee.group.objectives] == ["loss", "loss"]


def test_importance_is_asked_of_the_results(ended: Callable[..., object]) -> None:
    pytest.importorskip("optuna", reason="the importances are Optuna's")
    _, results = ended(**ONE)
    assert results.importance().points == 3
    assert "fewer than" in results.importance().why_not


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"replicates": 0}, "no number of replicates"),
        ({"replicates": 2, "failed": True}, "First resume with failed"),
        ({"replicates": 2, "trials": 9}, "First resume with failed or trials"),
    ],
)
def test_replicates_that_mean_nothing_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(airflows.SpecError) as raised:
        airflows.resume("any", **options)
    assert words in str(raised.value)


@pytest.mark.usefixtures("home")
def test_more_replicates_are_run_from_python(tmp_path: Path) -> None:
    base = {
        "experiment_name": "lr",
        "command": f'echo "$AIRFLOWS_TRIAL" >> {tmp_path}/runs',
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "parameters": {"lr": 0.1, "seed": 0},
    }
    tree = {**ONE, "base": base, "space": {"parameters.lr": [0.1, 0.2]}, "tracking": {"uri": "none"}}
    sweep = airflows.run(airflows.Sweep(name="lr", **tree)).sweep
    with pytest.raises(airflows.AirflowsError, match="has no winner"):
        airflows.resume(sweep, replicates=1)
    assert len((tmp_path / "runs").read_text().split()) == 4
