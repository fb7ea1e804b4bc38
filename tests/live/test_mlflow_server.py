"""A real MLflow server that goes away and comes back in the middle of a sweep."""

from types import SimpleNamespace

import pytest

from airflows.errors import TrackingUnavailableError
from airflows.testing.mlflow_server import free_port, interpreter, mlflow_server
from airflows.tracking import EndedRun, SweepEnd, SweepRun, TrialRun, open_tracker
from airflows.trial import State

pytestmark = pytest.mark.live
LOSS = SimpleNamespace(metric="loss", goal="minimize", take="best")


@pytest.fixture
def python() -> str:
    found = interpreter()
    if found is None:
        pytest.skip(
            "no mlflow server: pip install 'airflows[server]', or name a Python in AIRFLOWS_TEST_MLFLOW"
        )
    return found


def test_a_server_that_dies_and_comes_back_loses_nothing(tmp_path, python, clean_env):
    clean_env.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    port = free_port()
    trials = [TrialRun(number, f"t{number}", {"parameters.n": number}) for number in range(4)]
    with mlflow_server(tmp_path, python=python, port=port) as address:
        tracker = open_tracker(address, tmp_path, environment={})
        opened = tracker.open_sweep(SweepRun("s-123456", "x", "name: s\n"))
        before = tracker.create_runs(trials[:2], uncertain=False)

    calls = [
        tracker.check,
        lambda: tracker.create_runs(trials, uncertain=True),
        lambda: tracker.read(list(before.values()), LOSS),
        lambda: tracker.close([EndedRun(run_id, State.SUCCEEDED) for run_id in before.values()]),
        lambda: tracker.verify(before.values()),
        lambda: tracker.close_sweep(SweepEnd("succeeded", artifacts={"a.csv": "a\n"})),
    ]
    for call in calls:
        with pytest.raises(TrackingUnavailableError, match=address):
            call()

    with mlflow_server(tmp_path, python=python, port=port):
        after = tracker.create_runs(trials, uncertain=True)
        assert before.items() <= after.items()
        assert tracker.count_runs() == 4
        client = tracker._runs._client
        client.log_metric(after[3], "loss", float("-inf"), step=1)
        client.log_metric(after[3], "loss", 0.5, step=2)
        assert tracker.read(list(after.values()), LOSS)[after[3]].value == 0.5
        tracker.close([EndedRun(run_id, State.SUCCEEDED) for run_id in after.values()])
        end = SweepEnd("succeeded", artifacts={"a.csv": "a\n"}, run_ids=list(after.values()))
        assert tracker.close_sweep(end) == ()
        assert client.get_run(opened.parent_run_id).info.status == "FINISHED"
        assert {client.get_run(run_id).info.status for run_id in after.values()} == {"FINISHED"}
