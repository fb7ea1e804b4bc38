"""`results` and `best`: who won, and the same answer for people, scripts and spreadsheets."""

import contextlib
import csv
import io
import json
import math
import shlex
import sqlite3
import sys

import pyarrow.parquet
import pytest
import yaml

from airflows.cli.outcome import override_words
from airflows.train import parse_override

METRICS = [0.31, 0.30, 0.52, math.nan, 0.20, 0.22]

LOGGER = f"""
{sys.executable} - <<'EOF'
import os, mlflow, yaml
lr = yaml.safe_load(open(os.environ["HYPERPARAMETERS_PATH"]))["lr"]
with mlflow.start_run(run_id=os.environ["MLFLOW_RUN_ID"]):
    for step, value in enumerate([lr, lr / 2, lr * 2]):
        mlflow.log_metric("loss", value, step=step)
    mlflow.log_metric("accuracy", 1 - lr)
EOF
"""


@pytest.fixture(scope="module")
def swept(shared_cli):
    """Three points with two replicates each, whose metrics are put straight into the ledger."""
    file = shared_cli.sweep_file(
        replicates={"key": "parameters.seed", "values": [0, 1]},
        objective={"metric": "loss", "goal": "minimize"},
    )
    assert shared_cli("sweep", file, "-o", "json").document["trials"]["succeeded"] == len(METRICS)
    with contextlib.closing(sqlite3.connect(shared_cli.home / "ledger.db")) as ledger, ledger:
        for number, value in enumerate(METRICS):
            raw = "NaN" if math.isnan(value) else ""
            ledger.execute(
                "UPDATE trials SET value = ?, raw_value = ?, value_step = 7, reason = '' WHERE number = ?",
                (None if raw else value, raw, number),
            )
    return shared_cli


@contextlib.contextmanager
def in_ledger(cli, statement: str, *values: str):
    """Change the ledger for a while."""
    path = cli.home / "ledger.db"
    with contextlib.closing(sqlite3.connect(path)) as ledger, ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with contextlib.closing(sqlite3.connect(path)) as ledger, ledger:
        ledger.execute(statement, values)
    yield
    for left in path.parent.glob("ledger.db-*"):
        left.unlink()
    path.write_bytes(before)


def test_groups_of_replicates_are_ranked(swept):
    document = swept("results", "lr", "-o", "json").document
    assert document["complete"]
    assert [group["trials"] for group in document["ranked"]] == [[4, 5], [0, 1]]
    assert document["winner"]["trial"].endswith("/4")
    assert document["winner"]["overrides"] == {"parameters.lr": 0.3}
    assert document["ranked"][1]["p"] == pytest.approx(0.0317, abs=1e-3)
    assert document["objective"]["metric"] == "loss"


def test_what_is_not_ranked_has_a_reason_and_its_raw_value(swept):
    """O12."""
    unranked = swept("results", "lr", "-o", "json").document["unranked"]
    assert [trial["number"] for trial in unranked] == [2, 3]
    assert "NaN" in unranked[1]["reason"]


def test_the_table_shows_winner_spread_and_whether_it_is_noise(swept):
    """O15: the rule and the step that decided are printed."""
    told = swept("results", "lr").out
    for words in ("minimize loss (take last)", "SD", "worse, p=0.032", "winner", "sd 0.014", "the runner-up"):
        assert words in told
    header, first = told.splitlines()[2:4]
    assert first[header.index("STEP") :].split()[0] == "7"


def test_a_csv_has_every_trial(swept):
    rows = list(csv.DictReader(io.StringIO(swept("results", "lr", "--format", "csv").out)))
    assert [row["value"] for row in rows] == ["0.31", "0.3", "0.52", "NaN", "0.2", "0.22"]
    assert rows[4]["rank"] == "1"
    assert rows[4]["parameters.lr"] == "0.3"


def test_a_table_can_be_written_into_a_file(swept):
    done = swept("results", "lr", "--format", "csv", "--to", "r.csv")
    assert done.status == 0, done.err
    assert (swept.directory / "r.csv").read_text() == swept("results", "lr", "--format", "csv").out


def test_json_as_a_format_is_the_document(swept):
    assert (
        swept("results", "lr", "--format", "json").document == swept("results", "lr", "-o", "json").document
    )


@pytest.mark.parametrize(
    ("words", "ranks"),
    [(["--top", "1"], [1]), (["--where", "parameters.lr=0.10"], [2]), (["--where", "parameters.lr=9"], [])],
)
def test_results_can_be_narrowed_and_keep_their_ranks(swept, words, ranks):
    document = swept("results", "lr", *words, "-o", "json").document
    assert [group["rank"] for group in document["ranked"]] == ranks
    assert document["winner"]["rank"] == 1


def test_parquet(swept):
    assert "--to" in swept("results", "lr", "--format", "parquet").error
    path = swept.directory / "r.parquet"
    assert swept("results", "lr", "--format", "parquet", "--to", path).status == 0
    rows = pyarrow.parquet.read_table(path).to_pylist()
    table = list(csv.DictReader(io.StringIO(swept("results", "lr", "--format", "csv").out)))
    assert [str(row["parameters.lr"]) for row in rows] == [row["parameters.lr"] for row in table]


def test_parquet_says_what_it_needs(swept, tmp_path):
    (tmp_path / "pyarrow.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')"
    )
    path = tmp_path / "r.parquet"
    told = swept("results", "lr", "--format", "parquet", "--to", path, env={"PYTHONPATH": str(tmp_path)})
    assert "pyarrow" in told.error
    assert not path.exists()


def test_another_metric_needs_a_goal(swept):
    done = swept("results", "lr", "--metric", "accuracy")
    assert done.status == 2
    assert "--goal" in done.error


# best


def test_best_is_the_winner_alone(swept):
    results = swept("results", "lr", "-o", "json").document
    best = swept("best", "lr", "-o", "json").document
    assert best == {**results["winner"], "verdict": results["verdict"], "registered": None}
    told = swept("best", "lr").out
    assert "parameters.lr" in told
    assert "0.3" in told


def test_best_as_overrides_is_ready_for_run(swept):
    words = shlex.split(swept("best", "lr", "--as", "overrides").out)
    assert words == ["--override", "parameters.lr=0.3", "--override", "parameters.seed=0"]
    swept.train_file()
    done = swept("run", "-f", "train.yaml", *words, "--dry-run", "-o", "json")
    assert done.document["config"]["parameters"] == {"lr": 0.3, "opt": "adam", "seed": 0}


@pytest.mark.parametrize(
    "value",
    [
        *(math.inf, [math.inf, -math.inf], 1e-5, 1e16, 0.1, 2**64 - 1, True, None, [], {}),
        *(
            "1e3",
            "007",
            "yes",
            "",
            "null",
            "a: b",
            "#x",
            "@x",
            " x ",
            "it's",
            "a\nb",
            "\x7f",
            "\u2028",
            "😀\n",
        ),
        ["1e3", 1e-7, None, "a, b", "😀"],
        {"a": 1e-5, "1e3": [math.inf], "b c": {"d": "x: y"}},
    ],
)
def test_words_of_overrides_read_back_as_what_they_were(value):
    ((option, word),) = [shlex.split(word) for word in override_words({"parameters.x": value})]
    assert option == "--override"
    read = parse_override(word)
    assert (repr(read), "\n" in word) == (repr(("parameters.x", value)), False)


def test_best_as_yaml_is_a_train_yaml(swept):
    text = swept("best", "lr", "--as", "yaml").out
    assert yaml.safe_load(text)["parameters"] == {"lr": 0.3, "opt": "adam", "seed": 0}
    swept.write("best.yaml", text)
    assert swept("validate", "best.yaml").status == 0


def test_without_a_winner_best_has_status_1(cli):
    assert cli("sweep", cli.sweep_file(name="plain")).status == 0
    done = cli("best", "plain", "-o", "json")
    assert done.status == 1
    assert "objective" in done.document["error"]["message"]


# MLflow


@pytest.fixture(scope="module")
def tracked(shared_cli):
    """Two trials that log metrics to the embedded store."""
    file = shared_cli.sweep_file(
        LOGGER,
        file="tracked.yaml",
        name="tracked",
        space={"parameters.lr": [0.25, 0.5]},
        tracking={},
        objective={"metric": "loss", "goal": "minimize", "take": "best"},
    )
    done = shared_cli("sweep", file)
    assert done.status == 0, done.err
    return shared_cli, done


@pytest.mark.slow
def test_a_sweep_ends_with_the_ranked_table_the_winner_and_where_to_look(tracked):
    _, done = tracked
    assert "winner  tracked-" in done.out
    assert "loss 0.125" in done.out
    assert "mlflow ui --backend-store-uri sqlite:///" in done.out


@pytest.mark.slow
def test_the_winner_names_its_mlflow_run(tracked):
    cli, _ = tracked
    winner = cli("best", "tracked", "-o", "json").document
    assert (winner["value"], winner["steps"]) == (0.125, [1])
    assert len(winner["mlflow_run_id"]) == 32
    sweep = cli("get", "tracked", "-o", "json").document
    assert sweep["parent_run_id"]
    assert sweep["best"] == 0.125


@pytest.mark.slow
def test_another_metric_ranks_the_other_way_round(tracked):
    cli, _ = tracked
    document = cli("results", "tracked", "--metric", "loss", "--goal", "maximize", "-o", "json").document
    assert [group["value"] for group in document["ranked"]] == [1.0, 0.5]
    document = cli("results", "tracked", "--metric", "accuracy", "--goal", "maximize", "-o", "json").document
    assert [group["value"] for group in document["ranked"]] == [0.75, 0.5]


def test_another_metric_is_read_from_no_other_mlflow(swept):
    """Its address had a password, which only the environment knows; without it that is another store."""
    recorded = "http://me:***@mlflow.example.org"
    with in_ledger(swept, "UPDATE sweeps SET tracking_uri = ? WHERE name = 'lr'", recorded):
        done = swept("results", "lr", "--metric", "accuracy", "--goal", "maximize")
    assert (done.status, done.out) == (2, "")
    assert f"its runs in MLflow at {recorded}, and not at none" in done.error
    assert "MLFLOW_TRACKING_URI" in done.error


@pytest.mark.slow
def test_another_metric_is_not_ranked_where_runs_are_missing(tracked):
    """The same address, and behind it a new store."""
    cli, _ = tracked
    with in_ledger(cli, "UPDATE trials SET run_id = ? WHERE sweep LIKE 'tracked%' AND number = 1", "f" * 32):
        done = cli("results", "tracked", "--metric", "accuracy", "--goal", "maximize")
    assert (done.status, done.out) == (1, "")
    assert "has 1 of the 2 runs" in done.error


@pytest.mark.slow
def test_a_run_that_never_logs_the_metric_is_said(cli):
    """O11."""
    file = cli.sweep_file(
        "echo nothing to see",
        tracking={},
        objective={"metric": "loss", "goal": "min"},
        space={"parameters.lr": [1]},
    )
    done = cli("sweep", file, "-o", "json")
    assert done.status == 1
    assert done.document["winner"] is None
    assert "not logged" in done.document["message"]
    assert cli("get", "lr/0", "-o", "json").document["reason"] == "no_metric"
    assert json.loads(cli("best", "lr", "-o", "json").out)["error"]["kind"] == "no_result"
