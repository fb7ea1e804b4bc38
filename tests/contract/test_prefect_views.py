"""Trials as Prefect sees them: task runs and events, and the schema of the deployments' parameters."""

import asyncio
import importlib.util
import logging
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.types._datetime import DateTime
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate

from airflows.engine import operations
from airflows.errors import BackendUnavailableError, SpecError
from airflows.flowruns import events, running
from airflows.flowruns.events import EventObserver, event_name, payload_of, resource_of
from airflows.flowruns.mirroring import picture_of
from airflows.flowruns.request import SweepRequest, Wanted
from airflows.flowruns.running import SweepTag, instance_of, wanted_by
from airflows.ledger import Change
from airflows.sweepfile import sweep_from_mapping
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
    assert instance_of(FlowRun(flow_id=uuid4(), expected_start_time=at)) == "2026-11-30T01:00:00.000Z"


def test_without_a_scheduled_time_each_flow_run_is_an_instance_of_its_own():
    run = FlowRun(flow_id=uuid4())
    assert instance_of(run) == str(run.id)


def test_passwords_in_addresses_are_shown_nowhere():
    address = "postgresql://me:hush@db.example.org/runs"
    detail = "x" * 87 + f" no route to {address}"
    failed = change(State.RUNNING, State.FAILED, EventKind.FAILED, detail=detail)
    assert payload_of(failed)["message"].endswith("no route to postgresql://me:***@db.example.org/runs")
    # The message is cut between the password and what tells that it is one.
    picture = picture_of(trial(State.FAILED, message=detail), {"parameters.a": detail})
    assert "hush" not in picture.name + picture.message
    assert "me:***" in picture.message


@pytest.mark.parametrize("run", [None, FlowRun(flow_id=uuid4(), deployment_id=uuid4())])
def test_only_events_of_the_sweeps_own_flow_run_lead_to_it(run, monkeypatch, caplog):
    sent = []
    monkeypatch.setattr(events, "emit_event", lambda _name, _resource, **fields: sent.append(fields))
    detail = "no route to http://me:hush@example.org/"
    EventObserver(run, logging.getLogger("test")).on_changes(
        [change(State.RUNNING, State.FAILED, EventKind.FAILED, detail=detail)]
    )
    (fields,) = sent
    roles = [each["prefect.resource.role"] for each in fields["related"]]
    assert roles == ([] if run is None else ["flow-run", "deployment"])
    assert "hush" not in caplog.text
    assert "no route to" in caplog.text


def test_the_tag_follows_a_sweep_that_got_another_id():
    written = []

    class Client:
        async def update_flow_run(self, _, *, tags) -> None:
            written.append(tags)

    driving = SimpleNamespace(sweep="lr-ab12cd")
    tag = SweepTag(Client(), FlowRun(flow_id=uuid4(), tags=["mine", "airflows:lr-ab12cd"]), driving)
    asyncio.run(tag.show())
    driving.sweep = "lr-99ffee"
    asyncio.run(tag.show())
    asyncio.run(tag.show())
    assert written == [["mine", "airflows:lr-99ffee"]]


def recorded_sweep(home: Path, trials: int) -> str:
    base = {
        "experiment_name": "x",
        "command": "true",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "parameters": {"n": 0},
    }
    tree = {"base": base, "space": {"parameters.n": list(range(trials))}, "tracking": {"uri": "none"}}
    loaded = sweep_from_mapping({"name": "large", **tree}, directory=home)
    return operations.start(loaded, home=home, drive=False).row.id


def test_a_sweep_of_the_ledger_that_is_too_large_is_not_mirrored_either(home):
    home.mkdir()
    sweep = recorded_sweep(home, 1001)
    tagged = FlowRun(flow_id=uuid4(), tags=[f"airflows:{sweep}"])
    untagged = FlowRun(flow_id=uuid4())
    for run in (tagged, untagged):
        assert wanted_by(run, SweepRequest(sweep), home) == Wanted(sweep)
        with pytest.raises(SpecError, match="1,001 trials"):
            wanted_by(run, SweepRequest(sweep, show_trials=True), home)


@pytest.mark.usefixtures("home")
def test_task_runs_are_left_as_such_when_the_flow_run_fails(monkeypatch):
    left = []

    async def fail(*_) -> None:
        message = "gone"
        raise BackendUnavailableError(message)

    async def leave(_, flow_run_id) -> None:
        left.append(flow_run_id)

    monkeypatch.setattr(running, "attend", fail)
    monkeypatch.setattr(running, "leave_task_runs", leave)
    run, logger = FlowRun(flow_id=uuid4()), logging.getLogger("test")
    for request in (SweepRequest("large", show_trials=True), SweepRequest("large")):
        with pytest.raises(BackendUnavailableError):
            asyncio.run(running._attend(None, run, Wanted("large-ab12cd"), request, logger))
    assert left == [run.id]


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


@pytest.mark.parametrize("at_once", [0, -1])
def test_the_janitor_drives_at_least_one_sweep(at_once):
    with pytest.raises(ValidationError, match="at_once"):
        validate({"at_once": at_once}, schema_of("janitor"), raise_on_error=True)
    validate({"at_once": 1}, schema_of("janitor"), raise_on_error=True)
