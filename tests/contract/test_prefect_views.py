"""Trials as Prefect sees them: task runs and events, and the schema of the deployments' parameters."""

import importlib.util
from pathlib import Path

import pytest
from prefect.client.schemas.objects import StateType
from prefect.types._datetime import DateTime
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate

from airflows.flowruns.events import event_name, payload_of, resource_of
from airflows.flowruns.mirroring import picture_of
from airflows.flowruns.running import instance_of
from airflows.ledger import Change
from airflows.trial import Event, EventKind, Reason, State, Trial

ROOT = Path(__file__).parents[2]
TREE = {"name": "lr", "base": "train.yaml", "space": {"parameters.lr": [0.1, 0.2]}}


def trial(state: State, **fields) -> Trial:
    return Trial("lr-ab12cd", 3, 3, 0, state, **fields)


def change(before: State, after: State, kind: EventKind, **fields) -> Change:
    return Change(trial(before, attempt=1), trial(after, attempt=1), Event(kind, 0.0, **fields), "token")


@pytest.mark.parametrize(
    ("state", "kind", "name"),
    [
        (State.SUBMITTING, StateType.PENDING, "Pending"),
        (State.QUEUED, StateType.PENDING, "Queued"),
        (State.RUNNING, StateType.RUNNING, "Running"),
        (State.STOPPING, StateType.RUNNING, "Stopping"),
        (State.SUCCEEDED, StateType.COMPLETED, "Completed"),
        (State.FAILED, StateType.FAILED, "Failed"),
        (State.STOPPED, StateType.COMPLETED, "Stopped"),
        (State.CANCELLED, StateType.CANCELLED, "Cancelled"),
    ],
)
def test_each_state_has_its_picture(state, kind, name):
    picture = picture_of(trial(state), {"parameters.lr": 0.1})
    assert (picture.kind, picture.state, picture.key) == (kind, name, "lr-ab12cd/3")
    assert picture.name == "3: lr=0.1"


def test_a_trial_is_shown_from_its_first_attempt_on():
    assert picture_of(trial(State.PENDING), {}) is None
    waiting = picture_of(trial(State.PENDING, attempt=1), {})
    assert (waiting.kind, waiting.state) == (StateType.PENDING, "AwaitingRetry")


def test_a_long_name_is_cut():
    assert len(picture_of(trial(State.RUNNING), {"parameters.text": "x" * 500}).name) == 120


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (change(State.PENDING, State.SUBMITTING, EventKind.CLAIMED), ""),
        (change(State.SUBMITTING, State.QUEUED, EventKind.ACCEPTED), "airflows.trial.queued"),
        (change(State.QUEUED, State.RUNNING, EventKind.STARTED), "airflows.trial.running"),
        (change(State.RUNNING, State.STOPPING, EventKind.STOP_ASKED), ""),
        (change(State.RUNNING, State.PENDING, EventKind.RETRIED), "airflows.trial.retried"),
        (change(State.SUBMITTING, State.PENDING, EventKind.UNSENT), ""),
        (change(State.RUNNING, State.FAILED, EventKind.FAILED), "airflows.trial.failed"),
        (change(State.STOPPING, State.CANCELLED, EventKind.GONE), "airflows.trial.cancelled"),
        (change(State.RUNNING, State.RUNNING, EventKind.STARTED), ""),
    ],
)
def test_each_transition_that_people_see_is_one_event(found, name):
    assert event_name(found) == name


def test_an_event_says_which_trial_and_why():
    found = change(State.RUNNING, State.FAILED, EventKind.FAILED, reason=Reason.ERROR, detail="exit 1")
    assert resource_of(found)["prefect.resource.id"] == "airflows.trial.lr-ab12cd/3"
    said = payload_of(found)
    assert (said["from"], said["to"], said["reason"], said["message"]) == (
        "running",
        "failed",
        "error",
        "exit 1",
    )


def test_the_instance_is_the_scheduled_time():
    at = DateTime.fromisoformat("2026-11-30T02:00:00+01:00")
    assert instance_of(at) == "2026-11-30T01:00:00.000Z"
    assert instance_of(None) == ""


def schema_of(flow: str) -> dict:
    """Return the schema that a deployment shows, from the flow as it is loaded from its file."""
    spec = importlib.util.spec_from_file_location(f"flow_{flow}", ROOT / "flows" / f"{flow}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return parameter_schema(getattr(module, flow).fn).model_dump()


@pytest.mark.parametrize("flow", ["sweep", "promote"])
def test_the_form_shows_the_fields_of_a_sweep_file(flow):
    schema = schema_of(flow)
    fields = schema["definitions"]["SweepSpec"]["properties"]
    assert {"name", "base", "space", "objective", "limits", "backend"} <= fields.keys()
    assert fields["space"]["description"] == "Override key to the values it takes."
    undescribed = [name for name, shown in schema["properties"].items() if not shown.get("description")]
    assert undescribed == []


@pytest.mark.parametrize("sweep", ["sweep.yaml", TREE, {**TREE, "limits": {"wall_time": "12h"}}])
def test_a_good_sweep_is_accepted_by_the_schema(sweep):
    validate({"sweep": sweep}, schema_of("sweep"), raise_on_error=True)


@pytest.mark.parametrize(
    ("sweep", "field"),
    [
        ({**TREE, "spce": {}}, "spce"),
        ({**TREE, "limits": {"concurrent": 0}}, r"limits\.concurrent"),
        ({**TREE, "objective": {"metric": "loss", "goal": "down"}}, r"objective"),
        ({"name": "lr"}, "base"),
        (7, "sweep"),
    ],
)
def test_a_bad_sweep_is_refused_by_the_schema(sweep, field):
    with pytest.raises(ValidationError, match=field):
        validate({"sweep": sweep}, schema_of("sweep"), raise_on_error=True)
