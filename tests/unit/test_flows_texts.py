"""What Prefect's pages show of a sweep."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from airflows.engine.results import SweepResults, aim_of
from airflows.flowruns.texts import (
    MOST_ROWS,
    View,
    artifact_name,
    artifacts_of,
    failure_text,
    link_text,
    percent_of,
    progress_line,
    result_of,
    table_of,
    winner_text,
)
from airflows.ledger import AttemptRow, SweepRow, SweepState, Wish
from airflows.ranking import Scored, rank
from airflows.sweepfile import sweep_from_mapping
from airflows.trial import Reason, State, Trial

TREE = {
    "name": "Night_run",
    "base": {
        "experiment_name": "x",
        "command": "true",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "parameters": {"lr": 0.1, "opt": "adam", "seed": 0},
    },
    "space": {"parameters.lr": [0.1, 0.2]},
    "replicates": {"key": "parameters.seed", "values": [0, 1]},
    "objective": {"metric": "loss", "goal": "minimize"},
}


def row(**fields) -> SweepRow:
    usual = dict.fromkeys(SweepRow.__dataclass_fields__, "")
    usual |= {
        "id": "Night_run-ab12cd",
        "name": "Night_run",
        "wish": Wish.RUN,
        "state": SweepState.SUCCEEDED,
        "total": 4,
        "exhausted": True,
        "created_at": 0.0,
        "ended_at": 100.0,
        "tracking_uri": "http://mlflow.example.org:5000/",
        "experiment_id": "7",
        "parent_run_id": "parent",
        "resumed_at": None,
    }
    return SweepRow(**{**usual, **fields})


def view(trials, attempts=(), tree=TREE, **fields) -> View:
    sweep = sweep_from_mapping(tree, directory=Path("/srv"))
    points = [(trial, {"parameters.lr": 0.1 * (trial.point + 1)}) for trial in trials]
    objective = sweep.spec.objective
    scored = [
        Scored(t.number, t.point, o, t.state, t.reason, t.value, run_id=t.run_id, message=t.message)
        for t, o in points
    ]
    ranking = None if objective is None else rank(aim_of(objective, sweep.spec), scored)
    counts = Counter(trial.state for trial in trials)
    complete = all(state.is_final for state in counts)
    return View(SweepResults(row(**fields), sweep, objective, ranking, counts, complete), points, attempts)


def trial(number: int, state=State.SUCCEEDED, value=None, **fields) -> Trial:
    made = Trial(
        "Night_run-ab12cd", number, number // 2, number % 2, state, value=value, run_id=f"run{number}"
    )
    return replace(made, **fields)


FINISHED = [trial(0, value=0.5), trial(1, value=0.7), trial(2, value=0.3), trial(3, value=0.1)]


def test_the_winner_is_told_with_its_overrides_as_words():
    text = winner_text(view(FINISHED))
    assert text.startswith("## Night_run-ab12cd: the winner\n")
    assert "| loss (minimize) | 0.2 ± 0.141 over 2 replicates |" in text
    assert "| trial | Night_run-ab12cd/3 |" in text
    assert "| MLflow run | run3 |" in text
    assert "| ranked | 4 of 4 trials |" in text
    assert "  --override parameters.lr=0.2 \\\n  --override parameters.seed=1\n" in text


def test_a_winner_before_the_end_is_so_far():
    text = winner_text(view([*FINISHED[:2], trial(2, State.RUNNING)], ended_at=None))
    assert text.startswith("## Night_run-ab12cd: the winner, so far\n")


def test_without_a_winner_it_says_why():
    failed = [trial(n, State.FAILED, message="exit 1: no file") for n in range(4)]
    text = winner_text(view(failed, state=SweepState.FAILED))
    assert text.startswith("## Night_run-ab12cd: no winner\n")
    assert "- trial 0: failed: exit 1: no file" in text


def test_the_table_has_ranked_trials_first_then_what_failed_and_what_runs():
    trials = [
        trial(0, State.RUNNING),
        trial(1, State.PENDING),
        *FINISHED[2:],
        trial(4, State.FAILED, point=2),
    ]
    rows = table_of(view(trials, ended_at=None))
    assert [each["trial"] for each in rows] == [2, 3, 4, 0, 1]
    assert rows[0] == {
        "trial": 2,
        "rank": 1,
        "state": "succeeded",
        "value": 0.3,
        "parameters.lr": 0.2,
        "parameters.seed": 0,
        "message": "",
    }


def test_a_large_table_is_cut_and_says_so():
    many = [trial(n, State.PENDING) for n in range(500)]
    made = {artifact.key: artifact for artifact in artifacts_of(view(many, total=500, ended_at=None))}
    table = made["night-run-trials"]
    assert len(json.loads(table.data)) == MOST_ROWS
    assert table.description.endswith("400 more: airflows results Night_run-ab12cd")


def test_values_that_json_cannot_hold_are_words():
    table = artifacts_of(view([trial(0, value=float("nan"))]))[1].data
    assert json.loads(table)[0]["value"] == "NaN"


def test_each_sweep_has_four_artifacts_and_fewer_where_there_is_less_to_say():
    keys = [artifact.key for artifact in artifacts_of(view(FINISHED))]
    assert keys == ["night-run-progress", "night-run-trials", "night-run-winner", "night-run-mlflow"]
    plain = {key: value for key, value in TREE.items() if key != "objective"}
    keys = [artifact.key for artifact in artifacts_of(view(FINISHED, tree=plain, tracking_uri="none"))]
    assert keys == ["night-run-progress", "night-run-trials"]


@pytest.mark.parametrize(("name", "key"), [("A_b-C", "a-b-c"), ("9", "9"), ("_", "sweep")])
def test_artifact_keys_have_lower_case_letters_digits_and_dashes(name, key):
    assert artifact_name(name) == key


def test_progress_counts_final_trials_of_all_that_are_planned():
    assert percent_of(row(total=4), {State.SUCCEEDED: 1, State.RUNNING: 1}) == 25.0
    assert percent_of(row(total=4), {State.SUCCEEDED: 3, State.FAILED: 1}) == 100.0
    assert percent_of(row(total=None), {State.SUCCEEDED: 1, State.PENDING: 2}) == 33.3
    assert percent_of(row(total=None), {}) == 0.0
    line = progress_line(row(total=4), {State.SUCCEEDED: 1, State.STOPPING: 1})
    assert line == "Night_run-ab12cd: 25 %; 4 trials: 2 pending, 1 running, 1 succeeded"


def test_the_link_leads_to_the_parent_run_without_a_password():
    assert link_text(row()) == (
        "[Night_run-ab12cd in MLflow](http://mlflow.example.org:5000/#/experiments/7/runs/parent)"
    )
    secret = link_text(row(tracking_uri="https://me:secret@mlflow.example.org/path/"))
    assert secret.endswith("(https://mlflow.example.org/path/#/experiments/7/runs/parent)")
    assert "mlflow ui --backend-store-uri sqlite:////srv/mlflow.db" in link_text(
        row(tracking_uri="sqlite:////srv/mlflow.db")
    )
    assert link_text(row(tracking_uri="none")) == ""


def attempt(number: int, signature: str) -> AttemptRow:
    usual = dict.fromkeys(AttemptRow.__dataclass_fields__, "")
    return AttemptRow(
        **{**usual, "number": number, "attempt": 0, "signature": signature, "message": signature}
    )


def test_a_failure_names_its_causes_grouped_and_what_to_do():
    attempts = [attempt(0, "ValueError: a"), attempt(1, "ValueError: a"), attempt(2, "MemoryError")]
    failed = view(
        [trial(n, State.FAILED) for n in range(3)],
        attempts,
        state=SweepState.FAILED,
        message="3 of 3 trials failed.",
    )
    assert failure_text(failed).splitlines() == [
        "Night_run-ab12cd failed: 3 of 3 trials failed.",
        "2 times: ValueError: a (Night_run-ab12cd/0.0)",
        "1 times: MemoryError (Night_run-ab12cd/2.0)",
        "After a fix: airflows resume Night_run-ab12cd --failed",
    ]


def test_passwords_in_addresses_are_shown_nowhere():
    address = "postgresql://me:hush@db.example.org/runs"
    # Cut between the password and what tells that it is one.
    long = "x" * 166 + f" no route to {address} " + "x" * 100
    trials = [trial(0, State.SUCCEEDED, 0.5), trial(1, State.FAILED, message=long)]
    causes = [attempt(1, long)]
    seen = view(trials, causes, message=f"no route to {address}")
    seen = replace(seen, trials=[(each, {"parameters.lr": address}) for each, _ in seen.trials])
    shown = json.dumps([artifact.data for artifact in artifacts_of(seen)])
    for text in (shown, json.dumps(result_of(seen)), failure_text(seen)):
        assert "hush" not in text
        assert "postgresql://me:***@db.example.org/runs" in text


def test_the_result_is_small_and_json():
    result = result_of(view(FINISHED))
    assert json.loads(json.dumps(result)) == result
    assert result == {
        "sweep": "Night_run-ab12cd",
        "state": "succeeded",
        "message": "",
        "trials": {
            "total": 4,
            "pending": 0,
            "queued": 0,
            "running": 0,
            "succeeded": 4,
            "failed": 0,
            "stopped": 0,
            "cancelled": 0,
        },
        "trial": "Night_run-ab12cd/3",
        "overrides": {"parameters.lr": 0.2, "parameters.seed": 1},
        "value": pytest.approx(0.2),
        "mlflow_run_id": "run3",
    }
    assert result_of(view([trial(0, State.FAILED, reason=Reason.ERROR)]))["overrides"] is None
