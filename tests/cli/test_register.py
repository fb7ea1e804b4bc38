"""`best --register`: a model that a real run has logged becomes a version, once, and an alias moves to it."""

import sys
import warnings

import pytest

from airflows.cli.failure import UsageError
from airflows.cli.outcome import model_and_alias
from airflows.tracking.loading import load

TRAIN = """
import os, yaml, mlflow

class Net(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [loss for _ in model_input]

with open(os.environ["HYPERPARAMETERS_PATH"]) as file:
    loss = yaml.safe_load(file)["lr"]
with mlflow.start_run(run_id=os.environ["MLFLOW_RUN_ID"]):
    mlflow.log_metric("loss", loss)
    mlflow.pyfunc.log_model(name="net", python_model=Net(), pip_requirements=[])
"""


def swept(cli, name, *losses):
    """Run a sweep whose trials log a model."""
    command = f"{sys.executable} -W ignore {cli.write('train.py', TRAIN)}"
    objective = {"metric": "loss", "goal": "minimize"}
    space = {"parameters.lr": list(losses)}
    done = cli(
        "sweep", cli.sweep_file(command, name=name, space=space, tracking={}, objective=objective), "--yes"
    )
    assert done.status == 0, done.err


@pytest.fixture(scope="module")
def registry(shared_cli):
    """A store with two sweeps, whose winners have a model called net."""
    swept(shared_cli, "first", 0.25)
    swept(shared_cli, "second", 0.5)
    return shared_cli


@pytest.fixture(scope="module")
def client(registry):
    return load("mlflow").MlflowClient(tracking_uri=f"sqlite:///{registry.home}/mlflow.db")


def test_the_winners_model_is_registered_once_and_the_alias_moves(registry, client):
    done = registry("best", "first", "--register", "digits@champion", "-o", "json")
    assert done.status == 0, done.err
    assert done.document["registered"] == {
        "model": "digits",
        "version": "1",
        "is_new": True,
        "alias": "champion",
        "previous": None,
    }
    version = client.get_model_version_by_alias("digits", "champion")
    assert version.run_id == done.document["mlflow_run_id"]
    assert version.tags["airflows.sweep"] == done.document["trial"].partition("/")[0]

    again = registry("best", "first", "--register", "digits@champion")
    assert "was registered already as version 1 of digits" in again.err
    assert "digits@champion pointed at it already" in again.err
    assert again.out.startswith("trial ")

    moved = registry("best", "second", "--register", "digits@champion")
    assert "registered as version 2 of digits" in moved.err
    assert "digits@champion has moved from version 1 to version 2." in moved.err
    assert len(client.search_model_versions("name='digits'")) == 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = client.get_model_version_by_alias("digits", "champion")
        assert load("mlflow.pyfunc").load_model(found.source).predict([0, 0]) == [0.5, 0.5]


@pytest.mark.parametrize("text", ["@champion", "digits@", "digits@latest", "digits@v2", "digits@a b"])
def test_what_is_no_name_is_refused_before_anything_is_looked_up(text):
    with pytest.raises(UsageError, match="--register"):
        model_and_alias(text)


def test_an_alias_may_be_left_out():
    assert model_and_alias("main.models.digits") == ("main.models.digits", "")


def test_a_sweep_without_an_objective_has_nothing_to_register(cli):
    cli("sweep", cli.sweep_file())
    done = cli("best", "lr", "--register", "net")
    assert done.status == 1
    assert "no objective" in done.error
