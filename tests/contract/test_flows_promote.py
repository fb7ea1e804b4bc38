"""A registered model's alias follows the better winner, in a real MLflow store."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

import airflows
from airflows.engine.promotion import register
from airflows.engine.results import gather
from airflows.errors import ConflictError, NotFoundError
from airflows.ledger import open_ledger
from airflows.tracking.loading import load

pytestmark = pytest.mark.slow

TRIAL = """
import os, sys, yaml
from mlflow import MlflowClient
with open(os.environ["HYPERPARAMETERS_PATH"]) as file:
    wanted = yaml.safe_load(file)
client, run = MlflowClient(), os.environ["MLFLOW_RUN_ID"]
client.log_metric(run, "loss", wanted["loss"])
client.log_metric(run, "latency", wanted["latency"])
if wanted["kind"] == "in_run":
    client.log_text(run, "flavors: {}", "model/MLmodel")
if wanted["kind"] == "both":
    client.log_text(run, "flavors: {}", "in_run/MLmodel")
if wanted["kind"] in {"logged", "both"}:
    experiment = client.get_run(run).info.experiment_id
    made = client.create_logged_model(experiment, name="model", source_run_id=run)
    client.finalize_logged_model(made.model_id, "READY")
"""


class Works:
    def __init__(self, directory: Path, home: Path) -> None:
        self.home = home
        self.script = directory / "train.py"
        self.script.write_text(TRIAL)
        self.uri = f"sqlite:///{home}/mlflow.db"
        self.client = load("mlflow").MlflowClient(tracking_uri=self.uri)

    def sweep(self, name: str, *losses: float, kind: str = "in_run", latency: float = 1.0, **fields) -> str:
        """Run a sweep to its end; return its id."""
        base = {
            "experiment_name": name,
            "command": f"{sys.executable} {self.script}",
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"loss": 0.0, "latency": latency, "kind": kind, "seed": 0},
        }
        objective = {"metric": "loss", "goal": "minimize"}
        tree = {"base": base, "space": {"parameters.loss": list(losses)}, "objective": objective, **fields}
        return airflows.run(airflows.Sweep(name=name, **tree)).sweep

    def points_at(self) -> str:
        """Return the loss of the run that the alias points at."""
        version = self.client.get_model_version_by_alias("net", "champion")
        return self.client.get_run(version.run_id).data.metrics["loss"]


@pytest.fixture
def works(tmp_path, home) -> Works:
    return Works(tmp_path, home)


def test_the_alias_moves_to_what_is_better_and_to_nothing_else(works):
    first = works.sweep("first", 0.5)
    made = airflows.promote(first, model="net")
    assert (made.moved, made.version, made.previous, made.why) == (
        True,
        "1",
        None,
        "Nothing has the alias yet.",
    )
    assert works.points_at() == 0.5
    again = airflows.promote(first, model="net")
    assert (again.moved, again.version, again.why) == (False, "1", "It points at the winner already.")

    worse = airflows.promote(works.sweep("worse", 0.6), model="net")
    assert (worse.moved, worse.version) == (False, "1")
    assert worse.why == "loss 0.6 is not better than 0.5 of version 1 (minimize)."

    better = airflows.promote(works.sweep("better", 0.4, kind="logged"), model="net")
    assert (better.moved, better.version, better.previous) == (True, "2", "1")
    assert works.points_at() == 0.4
    tags = works.client.get_model_version("net", "2").tags
    assert tags["airflows.value"] == "0.4"
    assert tags["airflows.metric"] == "loss"
    assert "/models/m-" in works.client.get_model_version("net", "2").source


def test_a_version_that_no_sweep_made_is_judged_by_its_run(works):
    by_hand = works.sweep("by_hand", 0.2)
    (trial,) = airflows.attach(by_hand).trials
    works.client.create_registered_model("net")
    works.client.create_model_version("net", f"runs:/{trial.mlflow_run_id}/model", run_id=trial.mlflow_run_id)
    works.client.set_registered_model_alias("net", "champion", "1")
    rival = works.sweep("rival", 0.3)
    assert (
        airflows.promote(rival, model="net").why == "loss 0.3 is not better than 0.2 of version 1 (minimize)."
    )
    (slow,) = [works.sweep("slow", 0.1, latency=9.0)]
    assert airflows.promote(slow, model="net").moved
    constrained = {"metric": "loss", "goal": "minimize", "constraints": ["latency <= 5"]}
    quick = airflows.promote(works.sweep("quick", 0.7, objective=constrained), model="net")
    assert quick.moved
    assert quick.why == "Version 2 cannot hold it: constraint latency <= 5 broken: 9.0."


def test_the_alias_stays_with_a_version_of_which_nothing_can_be_known(works):
    rival = works.sweep("rival", 0.3)
    run = works.client.create_run("0").info.run_id
    works.client.delete_run(run)
    works.client.create_registered_model("net")
    for number, made_by in enumerate([None, run, "0" * 32], start=1):
        works.client.create_model_version("net", "models/by_hand", run_id=made_by)
        works.client.set_registered_model_alias("net", "champion", str(number))
        with pytest.raises(ConflictError, match=rf"^version {number} has the alias, .* cannot be known: "):
            airflows.promote(rival, model="net")
        assert works.client.get_model_version_by_alias("net", "champion").version == number

    # One that a sweep promoted tells by its tags; a tag that somebody has broken tells nothing.
    tags = {
        "metric": "loss",
        "goal": "minimize",
        "take": '"last"',
        "across_replicates": "mean",
        "value": "0.2",
    }
    for name, text in tags.items():
        works.client.set_model_version_tag("net", "3", f"airflows.{name}", text)
    made = airflows.promote(rival, model="net")
    assert (made.moved, made.why) == (False, "loss 0.3 is not better than 0.2 of version 3 (minimize).")
    works.client.set_model_version_tag("net", "3", "airflows.value", "about 0.2")
    with pytest.raises(ConflictError, match=r"airflows\.value of version 3 is 'about 0\.2'"):
        airflows.promote(rival, model="net")


def test_each_model_of_a_run_is_a_version_of_its_own_and_made_once(works):
    (winner,) = airflows.attach(works.sweep("both", 0.5, kind="both")).trials
    registry = load("airflows.tracking.registry").Registry(works.uri)
    name = "tom's net"
    numbers = [
        registry.register(name, winner.mlflow_run_id, artifact)[0].number
        for artifact in ("model", "in_run", "model", "in_run")
    ]
    assert numbers == ["1", "2", "1", "2"]
    sources = [works.client.get_model_version(name, number).source for number in ("1", "2")]
    assert "/models/m-" in sources[0]
    assert sources[1].endswith("/artifacts/in_run")


def test_a_winner_without_a_model_says_what_to_log(works):
    sweep = works.sweep("bare", 0.5, kind="none")
    with pytest.raises(NotFoundError, match=r"has no model named 'model'\. Log one in the training script"):
        airflows.promote(sweep, model="net")
    assert works.client.search_registered_models() == []


def test_without_a_winner_there_is_nothing_to_promote(works):
    sweep = works.sweep(
        "none", 0.5, tracking={"uri": "none"}, objective={"metric": "other", "goal": "minimize"}
    )
    with pytest.raises(ConflictError, match="no winner"):
        airflows.promote(sweep, model="net")


def test_a_winner_is_registered_without_being_compared(works):
    worse = works.sweep("worse", 0.6)
    airflows.promote(works.sweep("better", 0.4), model="net")
    with closing(open_ledger(works.home)) as ledger:
        results = gather(ledger, ledger.sweep(worse))
    made = register(results, model="net", alias="champion", home=works.home)
    assert (made.version, made.is_new, made.previous) == ("2", True, "1")
    assert works.points_at() == 0.6
    again = register(results, model="net", alias="champion", home=works.home)
    assert (again.version, again.is_new, again.previous) == ("2", False, "2")
    bare = register(results, model="bare", alias="", home=works.home)
    assert (bare.version, bare.is_new, bare.alias, bare.previous) == ("1", True, "", None)
    assert works.client.get_registered_model("bare").aliases == {}


def test_which_model_of_a_run_is_meant_without_a_name(works):
    registry = load("airflows.tracking.registry").Registry(works.uri)
    (trial,) = airflows.attach(works.sweep("bare", 0.5, kind="none")).trials
    run = trial.mlflow_run_id
    with pytest.raises(NotFoundError, match=r"has no model named 'model'\. Log one in the training script"):
        registry.register("net", run, registry.only_model_of(run))
    experiment = works.client.get_run(run).info.experiment_id

    def log(name):
        made = works.client.create_logged_model(experiment, name=name, source_run_id=run)
        works.client.finalize_logged_model(made.model_id, "READY")
        return registry.only_model_of(run)

    works.client.log_text(run, "flavors: {}", "encoder/MLmodel")
    assert registry.only_model_of(run) == "encoder"
    with pytest.raises(NotFoundError, match=r"has several models: decoder, encoder\."):
        log("decoder")
    assert log("model") == "model"
