"""Following a sweep look by look comes to the same as reading all of it anew."""

import sys
from contextlib import closing
from dataclasses import replace

import pytest

from airflows.engine import operations
from airflows.engine.following import Follower
from airflows.engine.latest import asker
from airflows.ledger import open_ledger
from airflows.sweepfile import sweep_from_mapping
from airflows.trial import State

pytestmark = pytest.mark.slow

SCORE = """
import os, sqlite3, sys, yaml
with open(os.environ["HYPERPARAMETERS_PATH"]) as file:
    loss = yaml.safe_load(file)["lr"]
if loss > 0.5:
    sys.exit("ValueError: too much")
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
with store:
    for table in ("metrics", "latest_metrics"):
        store.execute(
            f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan) VALUES ('loss', ?, 1, ?, 3, 0)",
            (loss, os.environ["MLFLOW_RUN_ID"]),
        )
"""
LOSSES = [0.4, 0.9, 0.3, 0.35, 0.8, 0.2]


class Looking:
    """An observer that follows a sweep and each time reads it anew, too."""

    def __init__(self) -> None:
        self.pairs = []

    def begun(self, begun, drive):
        self.row, self.site = begun.row, drive.site
        self.follower = self._new()

    def _new(self):
        return Follower(self.site.ledger, self.row, self.site.spec, clock=lambda: 5e9)

    def on_changes(self, changes): ...

    def on_tick(self, _snapshot):
        self.pairs.append((self.follower.look(), self._new().look()))


@pytest.fixture
def followed(tmp_path, home):
    script = tmp_path / "score.py"
    script.write_text(SCORE)
    base = {
        "experiment_name": "followed",
        "command": f"{sys.executable} {script}",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "parameters": {"lr": 0.0},
    }
    tree = {
        "name": "followed",
        "base": base,
        "space": {"parameters.lr": LOSSES},
        "objective": {"metric": "loss", "goal": "minimize"},
        "retry": {"max": 1, "wait": "0s"},
        "limits": {"concurrent": 2, "identical_failures": 0, "accelerator_hours": 5},
    }
    looking = Looking()
    loaded = sweep_from_mapping(tree, directory=tmp_path)
    row = operations.start(loaded, home=home, observer=looking, on_begun=looking.begun).row
    return looking, row, home


def test_each_look_is_what_reading_all_would_have_been(followed):
    looking, row, home = followed

    def counted(live):
        return {(cause.reason, cause.attempts) for cause in live.causes}

    assert len(looking.pairs) > 3
    for step_by_step, at_once in looking.pairs:
        assert counted(step_by_step) == counted(at_once)
        assert step_by_step.accelerator_s == pytest.approx(at_once.accelerator_s)
        same = {"causes": (), "accelerator_s": 0.0, "forecast": None, "best": None}
        assert replace(step_by_step, **same) == replace(at_once, **same)

    with closing(open_ledger(home)) as ledger:
        end = Follower(ledger, row, looking.site.spec).look()
    assert end.counts == {State.SUCCEEDED: 4, State.FAILED: 2}
    assert end.best == (0.2, 5)
    assert [cause.attempts for cause in end.causes] == [4]
    assert end.state == "failed"
    assert end.accelerator_limit_s == 18_000
    assert end.curve[-1] == 0.2


def test_the_last_values_of_runs_come_from_mlflow_in_one_question(followed):
    looking, row, home = followed
    ledger = looking.site.ledger
    (trial,) = ledger.trials(row.id, numbers=[0])
    ask = asker(ledger.sweep(row.id), looking.site.spec, home)
    assert ask([trial.run_id])[trial.run_id]["loss"].value == 0.4
    ledger.close()
