"""The tracker's contract: on the embedded store, through MLflow's client, and on a real MLflow server."""

import math
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflows.ranking import Aim, Scored, rank
from airflows.testing.mlflow_server import interpreter, mlflow_server
from airflows.tracking import (
    EndedRun,
    MlflowTracker,
    OpenedSweep,
    RunsMissingError,
    SweepEnd,
    SweepRun,
    Tracker,
    TrackingRefusedError,
    TrialRun,
    open_tracker,
)
from airflows.tracking.loading import load
from airflows.trial import Reason, State

NAN, INF = math.nan, math.inf
AT_S = 1_800_000_000.0


@dataclass(frozen=True)
class Objective:
    metric: str = "loss"
    goal: str = "minimize"
    take: object = "last"


@dataclass
class Place:
    """A store, and what it takes to look at it from outside."""

    kind: str
    uri: str
    open: Callable[[], Tracker]

    @property
    def client(self) -> Any:
        return load("mlflow").MlflowClient(tracking_uri=self.uri)

    def start(self, sweep: str = "digits-7f3a9c", **changes: Any) -> tuple[Tracker, OpenedSweep]:
        """Open a tracker as a new driver does."""
        tracker = self.open()
        return tracker, tracker.open_sweep(SweepRun(sweep, "digits", **changes))


@pytest.fixture(scope="session")
def template(tmp_path_factory) -> Path:
    """A home with an embedded store, made once: MLflow's migrations take most of a second."""
    home = tmp_path_factory.mktemp("template")
    open_tracker(None, home, environment={})
    return home / "mlflow.db"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    python = interpreter()
    if python is None:
        pytest.skip(
            "no mlflow server here: pip install 'airflows[server]', or name a Python in AIRFLOWS_TEST_MLFLOW"
        )
    with mlflow_server(tmp_path_factory.mktemp("server"), python=python) as address:
        yield address


@pytest.fixture(params=["embedded", "client", pytest.param("server", marks=pytest.mark.live)])
def place(request, tmp_path, template) -> Place:
    if request.param == "server":
        uri = request.getfixturevalue("server")
        return Place(
            request.param, uri, lambda: open_tracker(uri, tmp_path, environment={}, clock=lambda: AT_S)
        )
    path = tmp_path / "mlflow.db"
    shutil.copy(template, path)
    uri = f"sqlite:///{path}"
    if request.param == "embedded":
        return Place(
            request.param, uri, lambda: open_tracker(None, tmp_path, environment={}, clock=lambda: AT_S)
        )
    client = load("airflows.tracking.client")
    return Place(
        request.param, uri, lambda: MlflowTracker(uri, client.ClientRuns(uri, "ada"), lambda: AT_S, {})
    )


@pytest.fixture
def sweep(request) -> str:
    """A sweep's id of its own, since the server is shared."""
    return f"s-{zlib.crc32(request.node.name.encode()) & 0xFFFFFF:06x}"


def trial(number: int, **changes: Any) -> TrialRun:
    overrides = {"parameters.lr": number / 10, "parameters.opt": "adam"}
    parameters = {"lr": number / 10, "opt": "adam", "seed": 0}
    return TrialRun(
        **{
            "number": number,
            "name": f"digits-{number:04d}-a0",
            "overrides": overrides,
            "parameters": parameters,
            "point": number,
        }
        | changes
    )


def log(place: Place, run_id: str, metric: str, *values: float, first_step: int = 1) -> None:
    for step, value in enumerate(values, first_step):
        place.client.log_metric(run_id, metric, value, timestamp=1000 + step, step=step)


def value_of(tracker: Tracker, run_id: str, **objective: Any):
    return tracker.read([run_id], Objective(**objective))[run_id]


# Sweeps


def test_opening_a_sweep_again_finds_its_runs(place, sweep):
    _, first = place.start(sweep)
    _, again = place.start(sweep)
    _, other = place.start(sweep + "0")
    assert again == first
    assert other.experiment_id == first.experiment_id
    assert other.parent_run_id != first.parent_run_id


def test_what_the_ledger_remembers_is_not_looked_up(place, sweep):
    tracker, first = place.start(sweep)
    tracker.close_sweep(SweepEnd("succeeded"))
    known = place.open().open_sweep(SweepRun(sweep, "another"), first)
    assert known == first
    assert place.client.get_run(first.parent_run_id).info.status == "RUNNING"
    assert place.client.get_experiment_by_name("another") is None


def test_attaching_to_a_finished_sweep_reads_and_changes_nothing(place, sweep):
    tracker, opened = place.start(sweep)
    ids = tracker.create_runs([trial(0)], uncertain=False)
    log(place, ids[0], "loss", 0.5)
    tracker.close_sweep(SweepEnd("succeeded", run_ids=list(ids.values())))
    reader = place.open()
    reader.attach(SweepRun(sweep, ""), opened)
    assert value_of(reader, ids[0]).value == 0.5
    reader.verify(ids.values())
    assert place.client.get_run(opened.parent_run_id).info.status == "FINISHED"


def test_nothing_can_be_asked_of_a_sweep_that_was_not_opened(place):
    with pytest.raises(RuntimeError, match="open_sweep or attach comes before"):
        place.open().count_runs()


def test_the_parent_run_carries_the_sweep(place, sweep):
    _, opened = place.start(sweep, source="name: digits\n", tags={"team": "vision"})
    run = place.client.get_run(opened.parent_run_id)
    assert run.info.run_name == sweep
    assert run.info.start_time == AT_S * 1000
    assert run.data.tags["airflows.sweep"] == sweep
    assert run.data.tags["team"] == "vision"
    assert text(place, opened.parent_run_id, "sweep.yaml") == "name: digits\n"


def text(place: Place, run_id: str, name: str) -> str:
    return Path(place.client.download_artifacts(run_id, name)).read_text(encoding="utf-8")


def test_a_deleted_experiment_is_refused_with_the_way_out(place, sweep):
    name = f"gone-{sweep}"
    place.client.delete_experiment(place.client.create_experiment(name))
    with pytest.raises(TrackingRefusedError, match="was deleted") as caught:
        place.open().open_sweep(SweepRun(sweep, name))
    assert caught.value.exit_code == 3


# Trials


def test_a_trial_is_a_child_run_with_its_overrides_and_parameters(place, sweep):
    tracker, opened = place.start(sweep, tags={"team": "vision"})
    ids = tracker.create_runs([trial(0), trial(1, replicate=2)], uncertain=False)
    assert set(ids) == {0, 1}
    run = place.client.get_run(ids[1])
    assert run.info.experiment_id == opened.experiment_id
    assert run.info.status == "RUNNING"
    assert run.info.run_name == "digits-0001-a0"
    assert run.data.params == {"parameters.lr": "0.1", "parameters.opt": "adam", "parameters.seed": "0"}
    tags = {
        "mlflow.parentRunId": opened.parent_run_id,
        "mlflow.runName": "digits-0001-a0",
        "airflows.sweep": sweep,
        "airflows.trial": "1",
        "airflows.point": "1",
        "airflows.replicate": "2",
        "team": "vision",
    }
    assert tags.items() <= run.data.tags.items()


def test_no_trials_are_no_runs(place, sweep):
    tracker, _ = place.start(sweep)
    assert tracker.create_runs([], uncertain=True) == {}
    assert tracker.read([], Objective()) == {}
    tracker.close([])


def test_more_parameters_than_a_request_holds_are_all_logged(place, sweep):
    tracker, _ = place.start(sweep)
    parameters = {f"p{n}": n for n in range(250)}
    (run_id,) = tracker.create_runs([trial(0, parameters=parameters)], uncertain=False).values()
    assert len(place.client.get_run(run_id).data.params) == 252


def test_a_long_value_is_whole_in_an_artifact(place, sweep):
    tracker, _ = place.start(sweep)
    prompt = "ü" * 7000
    (run_id,) = tracker.create_runs(
        [trial(0, overrides={"parameters.prompt": prompt})], uncertain=False
    ).values()
    shown = place.client.get_run(run_id).data.params["parameters.prompt"]
    assert "7000 characters, whole in the artifact" in shown
    assert prompt in text(place, run_id, "airflows/overrides.json")


@pytest.mark.parametrize("count", [3, 30])
def test_runs_that_a_driver_made_before_it_died_are_adopted(place, sweep, count):
    died, opened = place.start(sweep)
    made = died.create_runs([trial(number) for number in range(count - 1)], uncertain=False)
    next_driver, again = place.start(sweep)
    assert again == opened
    ids = next_driver.create_runs([trial(number) for number in range(count)], uncertain=True)
    assert {number: ids[number] for number in made} == made
    assert next_driver.count_runs() == count


def test_a_run_that_somebody_else_made_is_made_known_as_a_trial_s(place, sweep):
    tracker, opened = place.start(sweep)
    made = place.client.create_run(opened.experiment_id, tags={"theirs": "stays"}).info.run_id

    for _ in range(2):
        tracker.adopt(made, trial(0))
    tracker.adopt("0" * 32, trial(1))

    data = place.client.get_run(made).data
    assert data.params["parameters.lr"] == "0.0"
    assert data.tags["theirs"] == "stays"
    assert (data.tags["airflows.trial"], data.tags["mlflow.parentRunId"]) == ("0", opened.parent_run_id)
    assert tracker.count_runs() == 1


def test_a_run_whose_making_was_cut_short_is_completed(place, sweep):
    if place.kind == "embedded":
        pytest.skip("a run of the embedded store is made in one transaction")
    tracker, opened = place.start(sweep)
    tags = {"airflows.sweep": sweep, "airflows.role": "trial", "airflows.trial": "0"}
    bare = place.client.create_run(opened.experiment_id, tags=tags).info.run_id
    assert tracker.create_runs([trial(0)], uncertain=True) == {0: bare}
    assert place.client.get_run(bare).data.params["parameters.lr"] == "0.0"


def test_training_code_resumes_the_run_it_is_given(place, sweep):
    tracker, opened = place.start(sweep)
    (run_id,) = tracker.create_runs([trial(0)], uncertain=False).values()
    env = {
        **tracker.job_env(),
        **tracker.job_secrets(),
        "MLFLOW_RUN_ID": run_id,
        "MLFLOW_EXPERIMENT_ID": opened.experiment_id,
    }
    assert run_python(TRAINING, env).splitlines()[0] == run_id
    reading = value_of(tracker, run_id)
    assert (reading.value, reading.step) == (0.25, 3)


TRAINING = """
import mlflow
with mlflow.start_run() as run:
    print(run.info.run_id)
    mlflow.log_param("lr", "mine")
    mlflow.log_metric("loss", 0.25, step=3)
"""


def run_python(script: str, env: Mapping[str, str]) -> str:
    base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env={**base, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Reading


def test_the_latest_value_is_read_with_its_step(place, sweep):
    tracker, _ = place.start(sweep)
    ids = tracker.create_runs([trial(0), trial(1)], uncertain=False)
    log(place, ids[0], "loss", 0.5, 0.3, 0.4)
    log(place, ids[1], "other", 1.0)
    readings = tracker.read(list(ids.values()), Objective())
    assert (readings[ids[0]].value, readings[ids[0]].step, readings[ids[0]].rule) == (0.4, 3, "last")
    assert readings[ids[1]].value is None
    assert list(readings[ids[1]].logged) == ["other"]


def test_curves_of_running_trials_are_read_in_one_call_for_all(place, sweep):
    tracker, _ = place.start(sweep)
    ids = tracker.create_runs([trial(0), trial(1), trial(2)], uncertain=False)
    log(place, ids[0], "loss", 0.5, float("nan"))
    log(place, ids[1], "loss", 0.3)
    log(place, ids[1], "other", 1.0, 2.0)
    latest = tracker.latest(list(ids.values()))
    curves = dict(tracker.curve([ids[0], ids[1]], "loss"))

    assert {name: point.step for name, point in latest[ids[1]].items()} == {"loss": 1, "other": 2}
    assert math.isnan(latest[ids[0]]["loss"].value)
    assert latest[ids[2]] == {}
    assert [(point.step, repr(point.value)) for point in curves[ids[0]]] == [(1, "0.5"), (2, "nan")]
    assert [(point.step, point.value) for point in curves[ids[1]]] == [(1, 0.3)]


def test_each_take_reads_what_it_says(place, sweep):
    """Case O15."""
    tracker, _ = place.start(sweep)
    ids = tracker.create_runs([trial(1), trial(2)], uncertain=False)
    log(place, ids[1], "acc", 0.5, 0.9, 0.7)
    log(place, ids[2], "acc", 0.6, 0.8, 0.85)
    run_ids = [ids[1], ids[2]]

    def values(take):
        readings = tracker.read(run_ids, Objective("acc", "maximize", take))
        return [(readings[i].value, readings[i].step) for i in run_ids]

    assert values("best") == [(0.9, 2), (0.85, 3)]
    assert values("last") == [(0.7, 3), (0.85, 3)]
    assert values({"mean_of_last": 2}) == [(pytest.approx(0.8), 3), (pytest.approx(0.825), 3)]
    assert values({"at_step": 2}) == [(0.9, 2), (0.8, 2)]
    assert values({"at_step": 9}) == [(None, None), (None, None)]


def test_values_that_are_not_sound_are_read_as_they_were_logged(place, sweep):
    """Case O12: the same answer from SQLite and from a server, both of which keep infinity as a number."""
    tracker, _ = place.start(sweep)
    ids = tracker.create_runs([trial(number) for number in range(5)], uncertain=False)
    for number, value in enumerate([0.31, NAN, -INF, 1.797e308, INF]):
        log(place, ids[number], "loss", value)
    readings = tracker.read(list(ids.values()), Objective())
    scored = [
        Scored(number, number, {}, State.SUCCEEDED, value=readings[run_id].value, step=readings[run_id].step)
        for number, run_id in ids.items()
    ]
    ranking = rank(Aim("loss", "minimize"), scored)
    assert ranking.winner.number == 0
    assert ranking.winner.group.value == 0.31
    assert [(u.number, u.reason) for u in ranking.unranked] == [
        (1, "diverged: NaN"),
        (2, "diverged: -Infinity"),
        (3, "diverged: 1.797e+308"),
        (4, "diverged: Infinity"),
    ]


def test_best_passes_over_values_that_are_not_sound(place, sweep):
    tracker, _ = place.start(sweep)
    (run_id,) = tracker.create_runs([trial(0)], uncertain=False).values()
    log(place, run_id, "loss", 0.5, -INF, NAN, 0.3, 0.4)
    reading = value_of(tracker, run_id, take="best")
    assert (reading.value, reading.step) == (0.3, 4)


def test_metrics_under_near_names_are_told(place, sweep):
    """Case O14."""
    tracker, _ = place.start(sweep)
    (run_id,) = tracker.create_runs([trial(0)], uncertain=False).values()
    log(place, run_id, "val_acc ", 0.5)
    log(place, run_id, "val/acc", 0.6)
    reading = value_of(tracker, run_id, metric="val_acc", goal="maximize", take="best")
    assert reading.value is None
    assert list(reading.logged) == ["val/acc", "val_acc "]


def test_the_last_value_of_every_metric_comes_along_for_constraints(place, sweep):
    tracker, _ = place.start(sweep)
    (run_id,) = tracker.create_runs([trial(0)], uncertain=False).values()
    log(place, run_id, "loss", 0.5)
    log(place, run_id, "latency_ms", 30.0, 20.0)
    assert value_of(tracker, run_id).metrics == {"loss": 0.5, "latency_ms": 20.0}


def test_a_run_that_somebody_deleted_is_no_reading_and_is_counted(place, sweep):
    tracker, _ = place.start(sweep)
    ids = tracker.create_runs([trial(0), trial(1)], uncertain=False)
    tracker.verify(ids.values())
    place.client.delete_run(ids[1])
    assert set(tracker.read(list(ids.values()), Objective())) == {ids[0]}
    with pytest.raises(RunsMissingError, match="has 1 of the 2 runs") as caught:
        tracker.verify(ids.values())
    assert (caught.value.expected, caught.value.found) == (2, 1)
    tracker.close([EndedRun(ids[1], State.SUCCEEDED)])
    tracker.reopen([ids[1]])


# Ending


@pytest.mark.parametrize(
    ("state", "status"),
    [("succeeded", "FINISHED"), ("failed", "FAILED"), ("stopped", "KILLED"), ("cancelled", "KILLED")],
)
def test_a_trial_s_run_ends_as_the_trial_did(place, sweep, state, status):
    tracker, _ = place.start(sweep)
    (run_id,) = tracker.create_runs([trial(0)], uncertain=False).values()
    ended = EndedRun(run_id, State(state), Reason.ERROR, 2, "it failed" * 100, ended_at=AT_S + 5)
    for _ in range(2):
        tracker.close([ended])
        run = place.client.get_run(run_id)
        assert run.info.status == status
        assert run.info.end_time == (AT_S + 5) * 1000
        assert run.data.tags["airflows.state"] == state
        assert run.data.tags["airflows.reason"] == "error"
        assert run.data.tags["airflows.attempt"] == "2"
        assert len(run.data.tags["airflows.message"]) == 500
    tracker.reopen([run_id])
    assert place.client.get_run(run_id).info.status == "RUNNING"


def test_the_end_of_a_sweep_is_written_and_orphans_are_deleted(place, sweep):
    tracker, opened = place.start(sweep)
    ids = tracker.create_runs([trial(0), trial(1)], uncertain=False)
    # Made by a driver that died before it wrote the ids down.
    tracker.create_runs([trial(1), trial(2)], uncertain=False)
    artifacts = {"sweep.yaml": "name: x\n", "results.csv": iter(["a,b\n", "1,2\n"]), "winner.yaml": "µ: 1\n"}
    end = SweepEnd(
        "succeeded", "fine", artifacts, {"trial": f"{sweep}/0", "value": "0.31"}, list(ids.values())
    )
    assert tracker.close_sweep(end) == ()
    run = place.client.get_run(opened.parent_run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["airflows.state"] == "succeeded"
    assert run.data.tags["airflows.winner.trial"] == f"{sweep}/0"
    assert text(place, opened.parent_run_id, "results.csv") == "a,b\n1,2\n"
    assert text(place, opened.parent_run_id, "winner.yaml") == "µ: 1\n"
    assert tracker.count_runs() == 2
    tracker.verify(ids.values())


def test_the_description_is_stored_and_the_sweep_still_ends(place, sweep):
    tracker, opened = place.start(sweep)
    assert tracker.close_sweep(SweepEnd("failed", description="**won**")) == ()
    run = place.client.get_run(opened.parent_run_id)
    assert (run.info.status, run.data.tags["mlflow.note.content"]) == ("FAILED", "**won**")


def test_an_artifact_that_cannot_be_written_is_a_note_and_the_sweep_ends(place, sweep):
    def breaking():
        yield "a"
        raise OSError(28, "No space left on device")

    tracker, opened = place.start(sweep)
    artifacts = {"report.html": breaking(), "odd.txt": "\ud800", "results.csv": "a\n"}
    notes = tracker.close_sweep(SweepEnd("succeeded", artifacts=artifacts))
    assert [note.partition(" was")[0] for note in notes] == ["report.html", "odd.txt"]
    assert place.client.get_run(opened.parent_run_id).info.status == "FINISHED"
    assert text(place, opened.parent_run_id, "results.csv") == "a\n"


def test_a_description_that_is_refused_is_a_note_and_the_sweep_ends(place, sweep, monkeypatch):
    tracker, opened = place.start(sweep)
    end = tracker._runs.end

    def refusing(ends):
        if any("mlflow.note.content" in each.tags for each in ends):
            message = "MLflow refused: too long."
            raise TrackingRefusedError(message)
        end(ends)

    monkeypatch.setattr(tracker._runs, "end", refusing)
    (note,) = tracker.close_sweep(SweepEnd("succeeded", description="漢" * 9000))
    assert note.startswith("The description was not stored in MLflow")
    run = place.client.get_run(opened.parent_run_id)
    assert (run.info.status, run.data.tags["airflows.state"]) == ("FINISHED", "succeeded")


def test_ending_a_sweep_twice_is_ending_it_once(place, sweep):
    tracker, opened = place.start(sweep)
    ids = tracker.create_runs([trial(0)], uncertain=False)
    for content in ("first", "second"):
        tracker.close_sweep(SweepEnd("failed", "", {"results.csv": content}, run_ids=list(ids.values())))
    assert place.client.get_run(opened.parent_run_id).info.status == "FAILED"
    assert text(place, opened.parent_run_id, "results.csv") == "second"
    assert tracker.count_runs() == 1


def test_other_sweeps_are_left_alone(place, sweep):
    tracker, _ = place.start(sweep)
    other, opened = place.start(sweep + "0")
    other.create_runs([trial(0)], uncertain=False)
    tracker.close_sweep(SweepEnd("succeeded"))
    assert other.count_runs() == 1
    assert place.client.get_run(opened.parent_run_id).info.status == "RUNNING"


def test_the_same_sweep_of_another_ledger_is_left_alone(place, sweep):
    """Two homes give the same file the same id, and may share a store."""
    tracker, opened = place.start(sweep, owner="one")
    ids = tracker.create_runs([trial(0)], uncertain=False)
    tracker.close_sweep(SweepEnd("succeeded", run_ids=list(ids.values())))
    other, other_opened = place.start(sweep, owner="other")
    other_ids = other.create_runs([trial(0)], uncertain=True)
    other.close_sweep(SweepEnd("failed", run_ids=list(other_ids.values())))

    assert other_opened.parent_run_id != opened.parent_run_id
    assert other_ids != ids
    tracker.verify(ids.values())
    assert place.client.get_run(opened.parent_run_id).info.status == "FINISHED"


def test_a_thousand_runs_are_counted_over_all_pages(place, sweep, tmp_path):
    """Case O16: 1,203 runs are 1,203 rows. On the server, a tenth of it keeps the test short."""
    count = 203 if place.kind == "server" else 1203
    tracker, _ = place.start(sweep)
    maker = tracker
    if place.kind == "client":
        # The same file, filled the quick way.
        maker = open_tracker(place.uri, tmp_path, environment={})
        maker.open_sweep(SweepRun(sweep, "digits"))
    ids = maker.create_runs([trial(number) for number in range(count)], uncertain=False)
    run_ids = list(ids.values())
    assert tracker.count_runs() == count
    assert len(tracker.read(run_ids, Objective())) == count
    tracker.verify(run_ids)
    place.client.delete_run(run_ids[count // 2])
    with pytest.raises(RunsMissingError, match=f"has {count - 1:,} of the {count:,} runs"):
        tracker.verify(run_ids)


def test_checking_is_quiet_when_the_store_answers(place):
    assert place.open().check() is None
    assert not place.open().is_off


def test_what_mlflow_knows_of_a_lost_sweep_is_told(place):
    tracker, opened = place.start(owner="mine", definition="d" * 64, instance="nightly")
    ids = tracker.create_runs([TrialRun(7, "digits-0007", {}, {}, 3, 1)], uncertain=False)
    tracker.close([EndedRun(ids[7], State.FAILED, Reason.ERROR, 2, "no luck")])

    reader = place.open()
    experiment_id, parents = reader.known_sweeps("digits")
    reader.attach(SweepRun("digits-7f3a9c", "digits", owner="mine"), opened)
    (trial,) = reader.known_trials()

    assert experiment_id == opened.experiment_id
    (parent,) = [run for run in parents if run.run_id == opened.parent_run_id]
    assert (parent.status, parent.start_ms > 0) == ("RUNNING", True)
    wanted = {"airflows.definition": "d" * 64, "airflows.instance": "nightly", "airflows.owner": "mine"}
    assert wanted.items() <= dict(parent.tags).items()
    assert (trial.run_id, trial.status) == (ids[7], "FAILED")
    told = {
        "trial": "7",
        "point": "3",
        "replicate": "1",
        "state": "failed",
        "reason": "error",
        "attempt": "2",
    }
    assert {f"airflows.{key}": value for key, value in told.items()}.items() <= dict(trial.tags).items()


def test_an_experiment_that_is_not_there_is_not_made_by_asking(place):
    assert place.open().known_sweeps("never-made") == ("", ())
    assert place.client.get_experiment_by_name("never-made") is None
