"""An MLflow whose address holds a password: nothing keeps it, and the sweep goes on with the environment's."""

import contextlib
import sqlite3
import subprocess
from types import SimpleNamespace

import pytest

from airflows.cli import background, driving

PASSWORD = "s3kret-Kx9q"
URI = f"http://ada:{PASSWORD}@mlflow.example.com"


class StartedError(Exception):
    """A driver would have been started."""


@pytest.fixture
def started(monkeypatch):
    """What a driver in the background would have been started with."""
    seen = {}

    def popen(arguments, **how):
        seen.update(arguments=arguments, **how)
        raise StartedError

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(background, "refuse_second_driver", lambda _row: None)
    monkeypatch.setattr(driving, "reading", lambda _home: None)
    return seen


def leave(tmp_path, uri):
    site = SimpleNamespace(spec=SimpleNamespace(tracking=SimpleNamespace(uri=uri)))
    with pytest.raises(StartedError):
        driving._leave_to_background(None, SimpleNamespace(id="lr-1"), tmp_path, site)


def test_a_driver_in_the_background_gets_the_address_in_its_environment_alone(started, tmp_path):
    leave(tmp_path, URI)

    assert started["env"]["MLFLOW_TRACKING_URI"] == URI
    assert PASSWORD not in str(started["arguments"])


@pytest.mark.parametrize("uri", [None, "http://mlflow.example.com"])
def test_without_a_password_it_keeps_the_environment_of_its_parent(started, tmp_path, monkeypatch, uri):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://parent")
    leave(tmp_path, uri)

    assert started["env"]["MLFLOW_TRACKING_URI"] == "http://parent"


def test_a_detached_sweep_with_a_password_is_driven_and_resumed_and_keeps_it_nowhere(cli):
    store = f"sqlite:///{cli.directory}/own.db"
    sweep = cli.sweep_file("exit 1", tracking={"uri": f"{store}?password={PASSWORD}"})
    done = cli("sweep", sweep, "--detach")
    assert done.status == 0, done.err
    assert "MLFLOW_TRACKING_URI" in done.err
    # It fails, since its trials do.
    assert cli("watch", "lr").status == 1

    again = cli("resume", "lr", "--failed", env={"MLFLOW_TRACKING_URI": store})
    assert "error:" not in again.err, again.err
    assert len(cli.launches()) == 6
    assert PASSWORD not in done.out + done.err + again.out + again.err
    files = [path for path in cli.home.rglob("*") if path.is_file()]
    files.append(cli.directory / "own.db")
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []


def test_a_sweep_is_not_cancelled_in_another_mlflow_than_its_own(cli):
    cli.sweep_file(f"while ! test -e {cli.directory}/go; do sleep 0.05; done", tracking={})
    process = cli.start("sweep", cli.directory / "sweep.yaml")
    cli.wait_for(lambda: cli.states().get("running"), "a trial to run")
    process.kill()
    process.communicate(timeout=20)
    own = {"MLFLOW_TRACKING_URI": f"sqlite:///{cli.home}/mlflow.db"}
    with contextlib.closing(sqlite3.connect(cli.home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE sweeps SET tracking_uri = 'http://ada:***@mlflow.example.com'")

    done = cli("cancel", "lr", env=own)
    assert done.status != 0
    assert "MLFLOW_TRACKING_URI" in done.err or "http://ada:***@mlflow.example.com" in done.err, done.err

    with contextlib.closing(sqlite3.connect(cli.home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE sweeps SET tracking_uri = ?", [own["MLFLOW_TRACKING_URI"]])
    assert cli("cancel", "lr", env=own).status == 0
