"""Early stopping in a driver: replicates that wait, trials that are taken up again, checkpoints at rungs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflows.backends.base import Job
from airflows.engine.drive import Drive
from airflows.engine.reopen import reopen
from airflows.ledger import SweepRow, SweepState
from airflows.scores import MetricPoint
from airflows.testing.crash import Boundaries, Ticks, World, make_world
from airflows.testing.curves import CurveTracker
from airflows.testing.fake import Script
from airflows.trial import EventKind, State, Trial

OBJECTIVE = {"metric": "loss", "goal": "minimize", "take": "best"}


def make(home: Path, scripts: Any, tracker: type[CurveTracker] = CurveTracker, **tree: Any) -> World:
    world = make_world(home, scripts=scripts, tree={"objective": OBJECTIVE, **tree})
    world.tracker = tracker(cluster=world.cluster)
    return world


def drive(world: World) -> tuple[SweepRow, list[Trial]]:
    row = world.drive(Boundaries(), dead_for_sure=True)
    return row, world.ledger.trials(row.id)


def test_a_point_is_not_judged_by_the_first_of_its_replicates(tmp_path: Path) -> None:
    """One runs after the other, so the second has not even started when the first is looked at."""
    world = make(
        tmp_path,
        lambda _job: Script(seconds=3),
        space={"parameters.lr": [0.1, 0.2]},
        replicates={"key": "parameters.seed", "values": [0, 1]},
        stop={"method": "asha", "min_steps": 1, "reduction": 2, "max_steps": 2},
        limits={"concurrent": 1},
    )
    assert isinstance(world.tracker, CurveTracker)
    world.tracker.value_at = lambda number, _step: (0.3, 0.3, 0.4, 0.1)[number]
    row, trials = drive(world)

    assert [trial.state for trial in trials] == [State.SUCCEEDED] * 4
    assert row.winner is not None
    assert row.winner["trials"] == [2, 3]


class Diverging(CurveTracker):
    """A trial's first attempt logs NaN at its third second, and MLflow keeps that at step 3 of its run."""

    def _curve(self, run_id: str) -> list[MetricPoint]:
        runs = [run for run in self.cluster.runs.values() if run.job.number == self.numbers[run_id]]
        points: list[MetricPoint] = []
        for run in runs:
            ran = min(self.cluster.clock() - run.submitted_at, run.script.seconds)
            for step in range(1, int(ran) + 1):
                value = float("nan") if run.script.exit_code and step == 3 else 0.5
                points.append(MetricPoint(step, value, int((run.submitted_at + step) * 1000)))
        return sorted(points, key=lambda point: (point.step, point.at_ms))


@pytest.mark.parametrize("stop", [{}, {"method": "asha", "min_steps": 3, "reduction": 2}])
def test_a_trial_that_is_taken_up_again_is_not_stopped_for_what_it_logged_before(
    tmp_path: Path, stop: dict[str, Any]
) -> None:
    mended: list[bool] = []

    def scripts(_job: Job) -> Script:
        return Script(seconds=15) if mended else Script(seconds=3, exit_code=1)

    world = make(tmp_path, scripts, Diverging, space={"parameters.lr": [0.1]}, stop=stop, retry={"max": 0})
    row, (trial,) = drive(world)
    assert trial.state is State.FAILED
    mended.append(True)
    world.cluster.clock.advance(60)
    reopen(world.site(), row, failed=True, code="", now=world.cluster.clock())
    row, (trial,) = drive(world)

    assert (trial.state, trial.message, row.state) == (State.SUCCEEDED, "", SweepState.SUCCEEDED)


@pytest.mark.parametrize(
    ("name", "age_s", "pauses"),
    [
        ("step_1.pt", -1000, False),
        ("step_4.pt", 1000, True),
        ("last.pt", 1000, False),
        ("last.pt", -1000, True),
    ],
)
def test_a_trial_is_taken_off_at_a_rung_only_with_a_checkpoint_of_there(
    tmp_path: Path, name: str, age_s: float, *, pauses: bool
) -> None:
    """Without a step in its name, the checkpoint is one that was made after the score was stored."""

    def scripts(job: Job) -> Script:
        saved = Path(job.checkpoint_dir) / name
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text("all there is")
        at = world.cluster.clock() - age_s
        os.utime(saved, (at, at))
        return Script(seconds=6)

    world = make(
        tmp_path,
        scripts,
        space={"parameters.lr": [0.1, 0.2, 0.3]},
        stop={"method": "asha", "min_steps": 2, "reduction": 2, "resume": True},
        limits={"concurrent": 1},
    )
    row, _ = drive(world)
    kinds = [event for event in world.ledger.events(row.id) if event.reason == "paused"]

    assert bool([event for event in kinds if event.kind == EventKind.STOP_ASKED]) is pauses


@pytest.mark.parametrize(("found", "is_there"), [(2, False), (3, True), (-1, False)])
def test_where_checkpoints_are_out_of_sight_the_backend_is_asked(found: int, *, is_there: bool) -> None:
    """Of a file of which only the name is known, nobody knows when it was made."""
    backend: Any = SimpleNamespace(
        name="elsewhere",
        capabilities=SimpleNamespace(uploads=True),
        newest_checkpoint=lambda _at, _pattern: ("/volume/x", found),
    )
    site: Any = SimpleNamespace(backend=backend, service=None)
    submission: Any = SimpleNamespace(checkpoints=lambda _number: ("/volume", ""))
    drive = Drive(site, Ticks())

    assert drive._has_saved(submission, Trial("s-1", 0, 0, 0), step=3, since=0.0) is is_there
