"""The embedded store: made once whoever comes first, shared by processes, quiet, and as MLflow would write it."""

import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflows.errors import TrackingUnavailableError
from airflows.tracking import (
    EndedRun,
    NoTracker,
    SweepEnd,
    SweepRun,
    TrackingRefusedError,
    TrialRun,
    embedded,
    open_tracker,
)
from airflows.tracking.loading import load
from airflows.tracking.runs import NewRun, RunEnd
from airflows.trial import State

LOSS = SimpleNamespace(metric="loss", goal="minimize", take="last")
WRITERS, METRICS = 4, 200


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("template")
    open_tracker(None, home, environment={})
    return home / "mlflow.db"


@pytest.fixture
def stored(tmp_path, template) -> Path:
    """A home whose store is made already."""
    shutil.copy(template, tmp_path / "mlflow.db")
    return tmp_path


def python(script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | env,
    )


def journal_mode(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]
    finally:
        connection.close()


# Making it


def test_nothing_heavy_is_imported_until_a_tracker_is_opened():
    done = python(
        "import sys, airflows.tracking, airflows.ranking, airflows.report.tables; print(*sys.modules)"
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"mlflow", "sqlalchemy", "alembic", "scipy", "numpy", "pandas"})


OPEN = "import sys; from pathlib import Path; from airflows.tracking import *; t = open_tracker(None, Path(sys.argv[1]), environment={}); o = t.open_sweep(SweepRun('s-123456', 'x')); r = t.create_runs([TrialRun(0, 'a', {})], uncertain=False); t.close_sweep(SweepEnd('succeeded', artifacts={'a.txt': 'a'}, run_ids=r.values()))"


def test_making_and_using_it_says_nothing(tmp_path):
    done = python(OPEN, str(tmp_path / "new" / "home"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_tables_kept_here_are_those_that_mlflow_makes(tmp_path):
    open_tracker(None, tmp_path, environment={})
    load("airflows.tracking.making").make(tmp_path / "theirs.db", tmp_path / "mlartifacts")
    ours, theirs = content(tmp_path / "mlflow.db"), content(tmp_path / "theirs.db")
    assert len(ours) > 100
    assert ours == theirs


def content(path: Path) -> list[list[str]]:
    """Every statement that makes the database, without times, sorted with their parts: these come in any order."""
    connection = sqlite3.connect(path)
    try:
        return sorted(
            sorted(re.split(r",?\s*\n\s*", re.sub(r"\b\d{13}\b", "TIME", line)))
            for line in connection.iterdump()
        )
    finally:
        connection.close()


def test_an_mlflow_whose_tables_are_not_kept_here_makes_them_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "_SCHEMAS", tmp_path / "none")
    open_tracker(None, tmp_path, environment={}).open_sweep(SweepRun("s-123456", "x"))
    assert sorted(path.name for path in tmp_path.glob("mlflow.db.*")) == ["mlflow.db.lock"]


def test_the_driver_does_without_mlflow_and_its_memory(tmp_path):
    done = python(f"{OPEN}; print(*sys.modules)", str(tmp_path))
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "sqlalchemy" in loaded
    assert loaded.isdisjoint({"mlflow", "alembic", "pandas", "numpy", "pyarrow"})


def test_a_file_beside_the_user_is_not_taken_for_a_package(tmp_path, monkeypatch):
    (tmp_path / "mlflow.py").write_text("raise SystemExit('not the package')")
    monkeypatch.chdir(tmp_path)
    open_tracker(None, tmp_path / "home", environment={}).check()


def test_several_drivers_may_make_it_at_once(tmp_path):
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    drivers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for driver in drivers:
        assert driver.communicate()[1] == ""
        assert driver.returncode == 0
    assert sorted(path.name for path in tmp_path.glob("mlflow.db*")) == ["mlflow.db", "mlflow.db.lock"]


def test_what_a_crash_left_half_made_is_no_hindrance(tmp_path):
    (tmp_path / "mlflow.db.new").write_bytes(b"half a store")
    (tmp_path / "mlflow.db").touch()
    open_tracker(None, tmp_path, environment={}).check()
    assert not (tmp_path / "mlflow.db.new").exists()


def test_readers_do_not_stop_the_writer(stored):
    open_tracker(None, stored, environment={})
    assert journal_mode(stored / "mlflow.db") == "wal"


def test_a_network_file_system_gets_a_rollback_journal(tmp_path):
    open_tracker(None, tmp_path, on_network=True, environment={})
    assert journal_mode(tmp_path / "mlflow.db") == "delete"


def test_somebody_else_s_file_keeps_its_journal(stored, tmp_path):
    path = tmp_path / "theirs.db"
    shutil.copy(stored / "mlflow.db", path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    open_tracker(f"sqlite:///{path}", stored, environment={}).check()
    assert journal_mode(path) == "delete"


@pytest.mark.parametrize("name", ["with space", "50%", "what?", "µ#x"])
def test_any_directory_will_do(tmp_path, template, name):
    home = tmp_path / name
    home.mkdir()
    shutil.copy(template, home / "mlflow.db")
    tracker = open_tracker(None, home, environment={})
    opened = tracker.open_sweep(SweepRun("s-123456", "x", source="name: x\n"))
    tracker.create_runs([TrialRun(0, "a", {})], uncertain=False)
    assert sorted(path.name for path in home.iterdir() if not path.name.startswith("mlflow.db-")) == [
        "mlartifacts",
        "mlflow.db",
    ]
    assert list(home.glob(f"mlartifacts/*/{opened.parent_run_id}/artifacts/sweep.yaml"))


# Trouble


def test_a_file_that_is_no_database_is_one_clear_paragraph(tmp_path):
    (tmp_path / "mlflow.db").write_text("this is not a database, but it is long enough to be looked at" * 20)
    with pytest.raises(TrackingUnavailableError, match="not a database") as caught:
        open_tracker(None, tmp_path, environment={})
    assert str(tmp_path / "mlflow.db") in str(caught.value)
    assert caught.value.hint


def test_a_home_that_cannot_be_written_is_one_clear_paragraph(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TrackingUnavailableError, match="cannot be used"):
        open_tracker(None, tmp_path / "file" / "home", environment={})


def test_a_store_that_stays_locked_is_unavailable_and_not_without_metrics(stored):
    tracker = open_tracker(None, stored, environment={})
    tracker.open_sweep(SweepRun("s-123456", "x"))
    # A driver waits 20 seconds for the other writer; a test need not.
    engine = tracker._runs.engine
    engine.dispose()
    load("sqlalchemy").event.listen(engine, "connect", _impatient)
    holder = sqlite3.connect(stored / "mlflow.db")
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(TrackingUnavailableError, match="database is locked") as caught:
            tracker.create_runs([TrialRun(0, "a", {})], uncertain=False)
        assert "keeps it locked" in caught.value.hint
    finally:
        holder.close()
    assert set(tracker.create_runs([TrialRun(0, "a", {})], uncertain=True)) == {0}


def _impatient(connection, _record):
    connection.execute("PRAGMA busy_timeout=1")


def test_a_store_of_a_newer_mlflow_is_refused_politely(stored):
    set_revision(stored / "mlflow.db", "ffffffffffff")
    with pytest.raises(TrackingRefusedError, match="written by a newer MLflow"):
        open_tracker(None, stored, environment={})


def set_revision(path: Path, revision: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.close()


OLDER = """
import sys
from alembic import command
from sqlalchemy import create_engine
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
uri = "sqlite:///" + sys.argv[1]
engine = create_engine(uri)
Base.metadata.create_all(engine)
config = _get_alembic_config(uri)
with engine.begin() as connection:
    config.attributes["connection"] = connection
    command.upgrade(config, "head^" if len(sys.argv) < 3 else sys.argv[2])
"""


def make_older_store(path: Path) -> None:
    revisions = python(
        "from alembic.script import ScriptDirectory as S; from mlflow.store.db.utils import _get_alembic_config as c;"
        "print(*[s.revision for s in S.from_config(c('')).walk_revisions()])"
    ).stdout.split()
    done = python(OLDER, str(path), revisions[3])
    assert done.returncode == 0, done.stderr


def test_an_older_embedded_store_is_copied_and_migrated(tmp_path):
    make_older_store(tmp_path / "mlflow.db")
    tracker = open_tracker(None, tmp_path, environment={})
    tracker.open_sweep(SweepRun("s-123456", "x"))
    assert (
        len(
            [
                path
                for path in tmp_path.iterdir()
                if path.name.startswith("mlflow.db.") and path.suffix != ".lock"
            ]
        )
        == 1
    )


def test_somebody_else_s_older_file_is_left_as_it_is(tmp_path):
    path = tmp_path / "theirs.db"
    make_older_store(path)
    before = path.read_bytes()
    with pytest.raises(TrackingRefusedError, match="schema of an older MLflow") as caught:
        open_tracker(f"sqlite:///{path}", tmp_path / "home", environment={})
    assert "mlflow db upgrade" in caught.value.hint
    assert path.read_bytes() == before


def test_artifacts_that_cannot_be_stored_do_not_keep_the_sweep_from_ending(stored):
    tracker = open_tracker(None, stored, environment={})
    opened = tracker.open_sweep(SweepRun("s-123456", "x"))
    (stored / "mlartifacts").write_text("in the way")
    (note,) = tracker.close_sweep(SweepEnd("succeeded", artifacts={"results.csv": "a\n"}))
    assert note.startswith("results.csv was not stored in MLflow")
    client = load("mlflow").MlflowClient(tracking_uri=f"sqlite:///{stored}/mlflow.db")
    assert client.get_run(opened.parent_run_id).info.status == "FINISHED"


# What it writes


def test_a_run_is_what_mlflow_s_own_calls_would_have_made(stored):
    tracker = open_tracker(None, stored, environment={})
    opened = tracker.open_sweep(SweepRun("s-123456", "x"))
    mlflow = load("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{stored}/mlflow.db")
    tags = {"mlflow.parentRunId": opened.parent_run_id, "mlflow.user": "ada", "µ": "a\nb"}
    params = {"parameters.lr": "1e-05", "parameters.note": ""}

    theirs = client.create_run(opened.experiment_id, 1234, tags, "name").info.run_id
    client.log_batch(theirs, params=[mlflow.entities.Param(k, v) for k, v in params.items()])
    client.log_batch(theirs, tags=[mlflow.entities.RunTag("µ", "new"), mlflow.entities.RunTag("more", "1")])
    client.set_terminated(theirs, "FAILED", 5678)

    runs = load("airflows.tracking.sql").SqlRuns(
        f"sqlite:///{stored}/mlflow.db", stored / "mlartifacts", "ada"
    )
    (ours,) = runs.create(opened.experiment_id, [NewRun("name", 1234, tags, params)])
    runs.end([RunEnd(ours, "FAILED", 5678, {"µ": "new", "more": "1"})])

    assert rows(stored, ours) == rows(stored, theirs)


def test_an_experiment_is_what_mlflow_s_own_call_would_have_made(stored):
    client = load("mlflow").MlflowClient(tracking_uri=f"sqlite:///{stored}/mlflow.db")
    ours = open_tracker(None, stored, environment={}).open_sweep(SweepRun("s-123456", "ours")).experiment_id
    with open_tracker(None, stored, environment={})._runs.engine.connect() as connection:
        text = load("sqlalchemy").text
        load("mlflow.store.tracking.sqlalchemy_store").SqlAlchemyStore(
            f"sqlite:///{stored}/mlflow.db", str(stored / "mlartifacts")
        ).create_experiment("them")
        rows = connection.execute(text("SELECT * FROM experiments WHERE experiment_id > 0")).mappings().all()
    told = [
        {
            key: str(value).removesuffix(str(row["experiment_id"]))
            for key, value in row.items()
            if "time" not in key
        }
        | {"name": ""}
        for row in rows
    ]
    assert len(told) == 2
    assert told[0] == told[1]
    assert rows[0]["creation_time"] == pytest.approx(rows[1]["creation_time"], abs=60_000)
    assert client.get_experiment(ours).name == "ours"
    assert client.get_experiment_by_name("them").experiment_id != ours


def test_an_experiment_name_that_mlflow_would_not_take_is_refused(stored):
    with pytest.raises(TrackingRefusedError, match="at most 500 characters"):
        open_tracker(None, stored, environment={}).open_sweep(SweepRun("s-123456", "x" * 501))


def test_artifacts_are_where_mlflow_looks_for_them(stored):
    opened = open_tracker(None, stored, environment={}).open_sweep(
        SweepRun("s-123456", "x", source="name: x\n")
    )
    client = load("mlflow").MlflowClient(tracking_uri=f"sqlite:///{stored}/mlflow.db")
    assert [file.path for file in client.list_artifacts(opened.parent_run_id)] == ["sweep.yaml"]


def rows(home: Path, run_id: str) -> list[tuple[str, ...]]:
    """Every row of every table that has to do with a run, without its id."""
    connection = sqlite3.connect(home / "mlflow.db")
    try:
        columns = connection.execute(
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'"
        )
        tables = sorted({table for table, column in columns if column == "run_uuid"})
        return sorted(
            (table, *(str(value).replace(run_id, "ID") for value in row))
            for table in tables
            for row in connection.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (run_id,))  # noqa: S608
        )
    finally:
        connection.close()


# Several processes at once

TRAIN = """
import os, sys
os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_RUN_ID"], count = sys.argv[1], sys.argv[2], int(sys.argv[3])
import mlflow
with mlflow.start_run():
    for step in range(count):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
"""


def test_training_processes_and_the_driver_write_at_once_without_a_lock_error(stored):
    tracker = open_tracker(None, stored, environment={})
    tracker.open_sweep(SweepRun("s-123456", "x"))
    ids = tracker.create_runs([TrialRun(n, f"t{n}", {}) for n in range(WRITERS)], uncertain=False)
    uri = tracker.job_env()["MLFLOW_TRACKING_URI"]
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, uri, run_id, str(METRICS)], stderr=subprocess.PIPE, text=True
        )
        for run_id in ids.values()
    ]
    number = WRITERS
    while any(job.poll() is None for job in jobs):
        made = tracker.create_runs(
            [TrialRun(number, f"t{number}", {"parameters.n": number})], uncertain=False
        )
        tracker.read(list(ids.values()), LOSS)
        tracker.close([EndedRun(run_id, State.SUCCEEDED) for run_id in made.values()])
        number += 1
    assert [job.communicate()[1] for job in jobs] == [""] * WRITERS
    assert [job.returncode for job in jobs] == [0] * WRITERS
    readings = tracker.read(
        list(ids.values()), SimpleNamespace(metric="loss", goal="minimize", take={"at_step": 7})
    )
    assert [reading.value for reading in readings.values()] == [1 / 8] * WRITERS
    last = tracker.read(list(ids.values()), LOSS).values()
    assert [(reading.value, reading.step) for reading in last] == [(1 / METRICS, METRICS - 1)] * WRITERS
    assert tracker.count_runs() == number


def test_a_long_history_is_read_at_once(stored):
    tracker = open_tracker(None, stored, environment={})
    tracker.open_sweep(SweepRun("s-123456", "x"))
    (run_id,) = tracker.create_runs([TrialRun(0, "a", {})], uncertain=False).values()
    metric = load("mlflow").entities.Metric
    client = load("mlflow").MlflowClient(tracking_uri=f"sqlite:///{stored}/mlflow.db")
    for start in range(0, 3000, 1000):
        client.log_batch(
            run_id, metrics=[metric("loss", math.cos(s), 1000 + s, s) for s in range(start, start + 1000)]
        )
    best = SimpleNamespace(metric="loss", goal="minimize", take="best")
    expected = min(range(3000), key=math.cos)
    reading = tracker.read([run_id], best)[run_id]
    assert (reading.value, reading.step) == (math.cos(expected), expected)


# Without MLflow


def test_without_tracking_nothing_is_made_and_nothing_is_known(tmp_path):
    tracker = open_tracker("none", tmp_path, environment={"MLFLOW_TRACKING_URI": "http://host"})
    assert isinstance(tracker, NoTracker)
    assert tracker.is_off
    tracker.check()
    opened = tracker.open_sweep(SweepRun("s-123456", "x"))
    assert (opened.experiment_id, opened.parent_run_id) == ("", "")
    assert tracker.create_runs([TrialRun(0, "a", {})], uncertain=False) == {}
    assert tracker.read(["a"], LOSS) == {}
    tracker.reopen(["a"])
    tracker.close([EndedRun("a", State.FAILED)])
    tracker.verify(["a"])
    assert tracker.count_runs() == 0
    assert tracker.close_sweep(SweepEnd("succeeded")) == ()
    assert (tracker.job_env(), tracker.job_secrets()) == ({}, {})
    assert list(tmp_path.iterdir()) == []
