"""Noisy sweeps that really run: who may be as good as the winner, more replicates for these, a Pareto front."""

import csv
import io
import sys

import pytest

# As MLflow's client would log it, without the seconds that importing it takes.
SCORE = """\
import os
import sqlite3
import yaml
with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
    given = yaml.safe_load(file)
lr, seed = given["lr"], given["seed"]
noise = [0.02, -0.03, 0.01, -0.01, 0.03, -0.02, 0.04, -0.04][(seed + int(lr * 10)) % 8]
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
with store:
    for key, value in {"loss": lr + noise, "latency": 1 - lr, "memory": 10 * lr}.items():
        row = {"key": key, "value": value, "run": os.environ["MLFLOW_RUN_ID"]}
        for table in ("metrics", "latest_metrics"):
            store.execute(
                f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
                " VALUES (:key, :value, 1, :run, 0, 0)",
                row,
            )
"""
LOGGER = f"""
"{sys.executable}" - <<'EOF'
{SCORE}
EOF
"""
NOISY = {
    "name": "noisy",
    "space": {"parameters.lr": [0.1, 0.12, 0.9]},
    "replicates": {"key": "parameters.seed", "values": [0, 1, 2]},
    "objective": {"metric": "loss", "goal": "minimize"},
    "tracking": {},
}
ADDED = [9, 10, 11, 12]


@pytest.fixture(scope="module")
def noisy(shared_cli):
    """A sweep with three replicates of three points, of which two cannot be told apart."""
    done = shared_cli("sweep", shared_cli.sweep_file(LOGGER, **NOISY))
    assert done.status == 0, done.err
    return shared_cli, done


@pytest.fixture(scope="module")
def confirmed(noisy):
    """The same sweep with two more replicates of these two, and its results before."""
    cli, _ = noisy
    before = cli("results", "noisy", "-o", "json").document
    done = cli("resume", "noisy", "--replicates", "2")
    assert done.status == 0, done.err
    return cli, before, done


@pytest.fixture(scope="module")
def front(shared_cli):
    """A sweep with two objectives, of which one is best at one end and one at the other."""
    file = shared_cli.sweep_file(
        LOGGER,
        file="front.yaml",
        name="front",
        space={"parameters.lr": [0.1, 0.4, 0.8, 0.9]},
        objectives=[
            {"metric": "loss", "goal": "minimize"},
            {"metric": "latency", "goal": "minimize", "constraints": ["memory <= 8.5"]},
        ],
        tracking={},
    )
    done = shared_cli("sweep", file)
    assert done.status == 0, done.err
    return shared_cli, done


def test_a_sweep_ends_with_who_may_be_as_good_and_what_would_tell(noisy):
    cli, done = noisy
    sweep = cli("get", "noisy", "-o", "json").document["sweep"]
    assert "1 of the 2 other points may be as good, within noise: rank 2" in done.out
    assert "95 % interval" in done.out
    for told in (done.out, cli("results", "noisy").out):
        assert f"airflows resume {sweep} --replicates" in told or "take them as equal" in told


def test_the_document_has_the_same_in_figures(confirmed):
    _, before, _ = confirmed
    first, second, third = before["ranked"]
    assert [g["n"] for g in before["ranked"]] == [3, 3, 3]
    assert (second["separable_from_winner"], third["separable_from_winner"]) == (False, True)
    assert second["p"] <= second["p_adjusted"] <= 1
    assert third["p_adjusted"] < 0.05
    assert before["verdict"]["inseparable"] == [2]
    assert before["verdict"]["separated"] == 1
    low, high = first["ci95"]
    assert low < first["mean"] < high


def test_more_replicates_run_for_the_chosen_points_alone(confirmed):
    cli, _, done = confirmed
    assert "4 trials are added: 2 more replicates of each of the 2 points ranked 1 2." in done.err
    after = cli("results", "noisy", "-o", "json").document
    assert {next(iter(g["overrides"].values())): g["n"] for g in after["ranked"]} == {0.1: 5, 0.12: 5, 0.9: 3}
    added = [cli("get", f"noisy/{number}", "-o", "json").document for number in ADDED]
    assert [trial["overrides"]["parameters.seed"] for trial in added] == [3, 4, 3, 4]
    assert {trial["overrides"]["parameters.lr"] for trial in added} == {0.1, 0.12}
    assert cli.launches() == sorted(f"{number}/a0" for number in range(13))


def test_a_table_has_the_added_trials_too(confirmed):
    cli, _, _ = confirmed
    rows = list(csv.DictReader(io.StringIO(cli("results", "noisy", "--format", "csv").out)))
    assert [row["replicate"] for row in rows[9:]] == ["3", "4", "3", "4"]


@pytest.mark.parametrize("words", [["--failed"], ["--trials", "5"]])
def test_replicates_are_a_step_of_their_own(noisy, words):
    cli, _ = noisy
    done = cli("resume", "noisy", "--replicates", "2", *words)
    assert done.status == 2
    assert "--replicates" in done.error


def test_a_sweep_without_replicates_says_what_is_missing(front):
    cli, _ = front
    done = cli("resume", "front", "--replicates", "2")
    assert done.status == 2
    assert "has no replicates" in done.error
    assert "parameters.seed" in done.error


def test_importance_says_when_there_is_too_little(noisy):
    cli, _ = noisy
    document = cli("results", "noisy", "--importance", "-o", "json").document
    assert document["importance"]["points"] == 3
    assert "fewer than 10" in document["importance"]["why_not"]
    assert "fewer than 10" in cli("results", "noisy", "--importance").out
    assert cli("results", "noisy", "-o", "json").document["importance"] is None


def test_two_objectives_end_with_a_front_and_its_knee(front):
    cli, done = front
    assert "minimize loss (take last), minimize latency (take last)" in done.out
    assert "of a Pareto front of 3 points" in done.out
    assert "constraint memory <= 8.5 broken" in done.out
    document = cli("results", "front", "-o", "json").document
    assert document["winner"] is None
    assert [aim["metric"] for aim in document["objectives"]] == ["loss", "latency"]
    assert len(document["pareto"]) == 3
    assert [group["is_knee"] for group in document["pareto"]] == [True, False, False]
    assert document["ranked"][3]["overrides"] == {"parameters.lr": 0.9}


def test_best_of_two_objectives_is_the_knee(front):
    cli, _ = front
    knee = cli("best", "front", "-o", "json").document
    assert knee["overrides"] == {"parameters.lr": 0.4}
    assert [one["metric"] for one in knee["objectives"]] == ["loss", "latency"]
    told = cli("best", "front").out
    assert "the knee of the Pareto front" in told
    assert "latency" in told
    assert "--override parameters.lr=0.4" in cli("best", "front", "--as", "overrides").out


def test_a_table_of_two_objectives_has_a_column_for_each(front):
    cli, _ = front
    rows = list(csv.DictReader(io.StringIO(cli("results", "front", "--format", "csv").out)))
    assert [float(row["latency"]) for row in rows] == pytest.approx([0.9, 0.6, 0.2, 0.1])
    assert [row["note"] for row in rows[:2]] == ["on the Pareto front", "knee of the Pareto front"]


def test_ranked_by_one_metric_two_objectives_have_a_winner(front):
    cli, _ = front
    document = cli("results", "front", "--metric", "latency", "-o", "json").document
    assert document["pareto"] is None
    assert document["winner"]["overrides"] == {"parameters.lr": 0.8}
