"""Dying at the boundaries of a rehearsal: its trials are still killed once, resumed, and ended early."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from airflows.ledger import SweepState
from airflows.rehearsal.script import TAG
from airflows.rehearsal.script import Script as Rehearsal
from airflows.scores import MetricPoint
from airflows.testing.crash import Boundaries, Died, World, check, make_world
from airflows.testing.curves import CurveTracker
from airflows.testing.fake import Script
from airflows.trial import Reason, State

SECONDS = 500.0
CALLS = ("apply", "submit", "cancel")
REHEARSAL = Rehearsal("lr", branches=1, steps=3, timeout_s=100.0, metrics=("loss",))
TREE = {
    "space": {"parameters.lr": [0.1, 0.2]},
    "tracking": {"tags": {TAG: REHEARSAL.to_tag()}},
    "limits": {"concurrent": 2},
    "retry": {"max": 0, "wait": "0s"},
}


@dataclass
class Timed(CurveTracker):
    """Logs a value a second at the cluster's time; an attempt goes on where the one before it ended."""

    def _curve(self, run_id: str) -> list[MetricPoint]:
        number, now, made = self.numbers[run_id], self.cluster.clock(), list[MetricPoint]()
        for run in self.cluster.runs.values():
            seen = run.observe(now)
            if run.job.number == number and seen.started_at is not None:
                ran = int((seen.ended_at or now) - seen.started_at)
                made += [
                    MetricPoint(len(made) + n, 1.0, int((seen.started_at + n) * 1000) + 1) for n in range(ran)
                ]
        return made


def scripts(job):
    """There is a checkpoint as soon as a trial runs."""
    directory = Path(job.checkpoint_dir)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "step_1.pt").write_text("all there is")
    return Script(seconds=SECONDS)


def world_of(home: Path) -> World:
    world = make_world(home, scripts=scripts, tree=TREE)
    world.tracker = Timed(cluster=world.cluster)
    return world


def story(world: World, sweep: str) -> list[list[str]]:
    """Why the attempts of each trial ended, in order."""
    attempts = world.ledger.attempts(sweep)
    return [[a.reason for a in attempts if a.number == trial.number] for trial in world.ledger.trials(sweep)]


def test_dying_where_something_is_decided_kills_and_resumes_once_all_the_same(tmp_path):
    counted = Boundaries()
    undisturbed = world_of(tmp_path / "count")
    row = undisturbed.drive(counted, dead_for_sure=True)
    expected = [[Reason.PAUSED, Reason.RULE], [Reason.RULE]]

    assert story(undisturbed, row.id) == expected
    assert undisturbed.cluster.clock() - undisturbed.ledger.sweep(row.id).created_at < REHEARSAL.timeout_s
    # Between two looks at MLflow nothing is decided.
    deciding = [at for at, name in enumerate(counted.names, 1) if name.endswith(CALLS)]
    assert len(deciding) > 10
    for die_at in deciding:
        world = world_of(tmp_path / str(die_at))
        with pytest.raises(Died):
            world.drive(Boundaries(die_at), dead_for_sure=True)
        row = world.drive(Boundaries(), dead_for_sure=True)

        assert row.state is SweepState.SUCCEEDED
        check(world, row.id)
        assert story(world, row.id) == expected, counted.names[die_at - 1]
        assert {trial.state for trial in world.ledger.trials(row.id)} == {State.STOPPED}
        world.close()
