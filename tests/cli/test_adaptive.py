"""A sweep whose method learns, from the file to the winner; killed in between, it chooses the same points."""

import contextlib
import json
import sqlite3
import sys

import pytest

# Logs to the embedded store without MLflow, whose import would take most of the time.
LOGGER = f"""
{sys.executable} -S - <<'EOF'
import json, os, re, sqlite3
given = open(os.environ["HYPERPARAMETERS_PATH"]).read()
lr = float(re.search(r"^lr: *(\\S+)", given, re.M)[1])
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
row = ("loss", (lr - 0.3) ** 2, 0, os.environ["MLFLOW_RUN_ID"], 0, False)
with store:
    for table in ("metrics", "latest_metrics"):
        columns = "(key, value, timestamp, run_uuid, step, is_nan)"
        store.execute(f"INSERT INTO {{table}} {{columns}} VALUES (?, ?, ?, ?, ?, ?)", row)
EOF
"""  # noqa: S608 - the tables are named two lines above
TRIALS = 14


def adaptive(cli, **fields):
    return cli.sweep_file(
        LOGGER,
        space={"parameters.lr": {"min": 0.0, "max": 1.0}, "parameters.opt": ["adam", "sgd"]},
        tracking={},
        search={"method": "tpe", "trials": TRIALS, "seed": 2},
        objective={"metric": "loss", "goal": "minimize"},
        limits={"concurrent": 1},
        **fields,
    )


def points(cli):
    with contextlib.closing(sqlite3.connect(cli.home / "ledger.db")) as ledger:
        rows = ledger.execute("SELECT overrides FROM points ORDER BY sweep, number").fetchall()
    return [json.loads(row[0]) for row in rows]


@pytest.mark.slow
def test_killed_and_resumed_a_sweep_that_learns_chooses_the_same_points(cli, tmp_path):
    file = adaptive(cli)
    process = cli.start("sweep", file)
    cli.wait_for(lambda: cli.states().get("succeeded", 0) >= 11, "eleven trials to end")
    process.kill()
    process.wait()
    assert len(points(cli)) < TRIALS

    done = cli("resume", "lr", "-o", "json")
    assert done.status == 0, done.err
    assert done.document["trials"]["succeeded"] == TRIALS
    assert done.document["winner"]["value"] < 0.01
    made = points(cli)

    cli.home = tmp_path / "another"
    cli.env["AIRFLOWS_HOME"] = str(cli.home)
    whole = cli("sweep", file, "-o", "json")
    assert whole.status == 0, whole.err
    assert points(cli) == made
    previewed = cli("sweep", file, "--dry-run", "-o", "json").document
    assert [point["overrides"] for point in previewed["points"]] == made[: previewed["known"]]

    longer = cli("resume", "lr", "--trials", str(TRIALS + 2), "-o", "json")
    assert longer.status == 0, longer.err
    assert longer.document["trials"]["total"] == len(points(cli)) == TRIALS + 2


def test_a_preview_says_what_is_known_and_what_is_not(cli):
    done = cli("sweep", adaptive(cli), "--dry-run")

    assert done.status == 0, done.err
    assert "lr-" in done.out
    assert "14 trials on local. Nothing was started or written." in done.out
    assert "parameters.lr   from 0.0 to 1.0" in done.out
    assert "… and 4 more: from trial 10 on, tpe chooses by the values of those before" in done.out
    assert not cli.home.exists()


def test_a_method_that_learns_needs_metrics(cli):
    done = cli("sweep", adaptive(cli), "--set", "tracking.uri=none")

    assert done.status == 2
    assert "search.method tpe learns from metrics" in done.error
    assert cli("list", "-o", "json").document["sweeps"] == []
