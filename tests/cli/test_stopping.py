"""Stopping rules on real processes, what became of them, and what another rule would have done."""

import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "json.md"

# As MLflow's client would log it, without the seconds that importing it takes: a value a step, five steps.
CURVE = """\
import os
import signal
import sqlite3
import yaml
with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
    lr = yaml.safe_load(file)["lr"]
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
for step in range(1, 6):
    row = {"key": os.environ["METRIC"], "value": lr + 1 / step, "run": os.environ["MLFLOW_RUN_ID"], "step": step}
    with store:
        store.execute("DELETE FROM latest_metrics WHERE run_uuid = :run AND key = :key", row)
        for table in ("metrics", "latest_metrics"):
            store.execute(
                f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
                " VALUES (:key, :value, :step, :run, :step, 0)",
                row,
            )
if lr > float(os.environ["HANGS_ABOVE"]):
    signal.pause()
"""
CODE = f"""
export METRIC=%s HANGS_ABOVE=%s
"{sys.executable}" - <<'END'
{CURVE}
END
"""
LOSS = {"metric": "loss", "goal": "minimize", "take": "best"}
CURVES = {
    "tracking": {},
    "space": {"parameters.lr": [0.2, 0.9, 0.1, 0.8]},
    "objective": LOSS,
    "limits": {"concurrent": 2},
}


@pytest.fixture(scope="module")
def whole(shared_cli):
    """A sweep of which all trials ran to the end."""
    file = shared_cli.sweep_file(CODE % ("loss", "9"), name="whole", **CURVES)
    done = shared_cli("sweep", file)
    assert done.status == 0, done.err
    return shared_cli


def test_a_trial_that_would_never_end_is_stopped_by_the_rule(shared_cli):
    stop = {"method": "asha", "min_steps": 2, "reduction": 2}
    file = shared_cli.sweep_file(CODE % ("loss", "0.5"), name="asha", stop=stop, **CURVES)
    done = shared_cli("sweep", file, "-o", "json")

    assert done.status == 0, done.err
    assert (done.document["trials"]["succeeded"], done.document["trials"]["stopped"]) == (2, 2)
    assert done.document["winner"]["trials"] == [2]
    trial = shared_cli("get", "asha/1", "-o", "json").document
    assert (trial["state"], trial["reason"]) == ("stopped", "rule")
    assert trial["message"] == "stopped at step 2: 1.4 is above 0.7, the best of 2 trials at that step"


def test_stop_check_says_what_would_have_been_saved(whole):
    done = whole("stop-check", "whole", "--stop", "asha", "--stop", "min_steps=2", "--stop", "reduction=2")

    assert done.status == 0, done.err
    assert "It would have stopped 2 of 4 trials, and saved 30% of the steps" in done.out
    assert "It would have kept the winner, trial 2." in done.out


def test_stop_check_says_that_the_winner_would_have_been_lost(whole):
    words = ("--stop", "method=threshold", "--stop", "worse_than=0.5", "-o", "json")
    document = whole("stop-check", "whole", *words).document

    assert document["winner"] == {"trials": [2], "lost": [2]}
    assert [each["step"] for each in document["stopped"]] == [1, 1, 1, 1]
    assert document["steps"] == {"total": 20, "saved": 16, "share": 0.8}
    assert document["best_kept"] is None


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "has no stopping rule"),
        (["--stop", "median", "--stop", "steps=3"], "stop.method median has no steps"),
        (["--stop", "method=patience"], "stop.method patience needs steps"),
        (["--stop", "asha", "--stop", "metric=other"], "No objective says which value of other is better"),
    ],
)
def test_stop_check_refuses_what_is_no_rule(whole, words, error):
    done = whole("stop-check", "whole", *words)

    assert done.status == 2
    assert error in done.error


def test_a_metric_under_another_name_is_told_of(shared_cli):
    objective = {"metric": "val_loss", "goal": "minimize"}
    fields = CURVES | {"objective": objective, "limits": {"concurrent": 1}}
    done = shared_cli("sweep", shared_cli.sweep_file(CODE % ("'val/loss '", "9"), name="names", **fields))

    assert "warning: val_loss not seen; logged: 'val/loss '" in done.err
    assert "4 of 4 ended" in done.err + done.out


def test_a_metric_under_another_name_starts_nothing_more_where_that_is_strict(shared_cli):
    objective = {"metric": "val_loss", "goal": "minimize"}
    fields = CURVES | {"objective": objective, "limits": {"concurrent": 1}, "strict": True}
    file = shared_cli.sweep_file(CODE % ("'val/loss '", "9"), name="strict", **fields)
    document = shared_cli("sweep", file, "-o", "json").document

    assert document["state"] == "failed"
    assert "val_loss not seen; logged: 'val/loss ' (strict: true)" in document["message"]
    assert document["trials"]["succeeded"] < 4


def test_the_json_page_has_the_keys_of_what_stop_check_answers(whole):
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("| `stop-check`")]
    document = whole("stop-check", "whole", "--stop", "asha", "-o", "json").document
    inner = [document["steps"], document["accelerator_hours"], document["winner"], *document["stopped"][:1]]

    assert document["stopped"]
    for keys in (document, *inner):
        assert [key for key in keys if f'"{key}"' not in row] == []
