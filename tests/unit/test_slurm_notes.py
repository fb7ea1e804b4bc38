"""What the engine says of a cluster: why everything waits, and what its nodes would write into."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from airflows.backends.base import Observation, Phase
from airflows.engine import start
from airflows.engine.lookout import Lookout
from airflows.trial import Handle, State, Trial


def note_of(*observations: Observation) -> str:
    trials = [
        Trial("s", number, number, 0, state=State.QUEUED, handle=Handle(str(number)))
        for number in range(len(observations))
    ]
    seen = {trial.handle: one for trial, one in zip(trials, observations, strict=True)}
    lookout = Lookout(
        "s",
        SimpleNamespace(poll=lambda _: seen),
        SimpleNamespace(adopt=lambda *_: None),
        SimpleNamespace(overrides=lambda _: {}),
        lambda: 0.0,
    )
    lookout.look(trials, 0.0, lambda _: False)
    return lookout.note


QUEUED = Observation(Phase.QUEUED, detail="Slurm says Priority")


def test_where_all_wait_the_commonest_reason_is_told():
    other = Observation(Phase.QUEUED, detail="Slurm says Resources")

    assert note_of(other, QUEUED, QUEUED) == "Slurm says Priority"


@pytest.mark.parametrize("other", [Phase.RUNNING, Phase.UNKNOWN])
def test_where_something_goes_on_nothing_is_told(other):
    assert note_of(QUEUED, Observation(other)) == ""


def test_where_the_backend_gives_no_reason_nothing_is_told():
    assert note_of(Observation(Phase.QUEUED)) == ""


def notes_on(uri: str, *, shares_host: bool = False) -> list[str]:
    can = SimpleNamespace(shares_host=shares_host, uploads=False)
    places = [SimpleNamespace(own=SimpleNamespace(capabilities=can))]
    site = SimpleNamespace(tracker=SimpleNamespace(uri=uri), places=places)
    return start._notes_on_store(site)


def test_nodes_that_write_into_sqlite_on_a_network_file_system_are_warned_of(monkeypatch):
    monkeypatch.setattr(start, "is_on_network", lambda path: path == Path("/home/me/.airflows/mlflow.db"))
    (note,) = notes_on("sqlite:////home/me/.airflows/mlflow.db")

    assert "/home/me/.airflows/mlflow.db" in note
    assert "SQLite is not safe there" in note
    assert "MLFLOW_TRACKING_URI" in note


def test_a_store_on_a_disk_of_this_machine_is_said_to_be_there(tmp_path):
    (note,) = notes_on(f"sqlite:///{tmp_path}/mlflow.db")

    assert "a disk of this machine" in note


@pytest.mark.parametrize(
    ("uri", "shares_host"), [("http://mlflow:5000", False), ("none", False), ("sqlite:////a/b.db", True)]
)
def test_servers_and_runs_on_this_machine_are_fine(uri, shares_host):
    assert notes_on(uri, shares_host=shares_host) == []
