"""31 Jobs that were watched on a real cluster of 1.36, again on the fake one."""

import json
import re
from pathlib import Path

import pytest

from airflows.testing.cluster import Cluster

SCENARIOS = Path(__file__).parents[1] / "data" / "kubernetes" / "scenarios"
NAMESPACE, START = "scen", 1_800_000_000.0
INDEX = "batch.kubernetes.io/job-completion-index"
WITHOUT_GPUS = {"nodes": {"node1": {}}}
TERM_IN_A_SECOND = {"run_s": 60, "on_term_s": 1}

# What the commands of the recorded Jobs do.
PLANS = {
    "bad-command": [{"start_error": "exec: no such file or directory"}],
    "both-rules-bad": [],
    "deadline": [{"run_s": 60, "on_term_exit_code": 0}],
    "deadline-pending": [],
    "delete-bg": [TERM_IN_A_SECOND],
    "delete-fg": [TERM_IN_A_SECOND],
    "delete-orphan": [{"run_s": 5}],
    "disrupt-failjob": [{"run_s": 20}],
    "evict-counted": [{"run_s": 6}],
    "evict-ignored": [{"run_s": 6}],
    "exit42-failjob": [{"run_s": 30}, {"index": 1, "run_s": 1, "exit_code": 42}],
    "exit64-failjob": [{"run_s": 20}, {"index": 1, "run_s": 0, "exit_code": 64}],
    "init-fails": [{"init_exit_code": 7}],
    "longname": [{"run_s": 1}],
    "no-gpu": [],
    "no-image": [],
    "no-secret": [],
    "nofinal-log": [{"run_s": 5}],
    "ok": [{"run_s": 2}],
    "one-fails": [{"run_s": 30, "on_term_exit_code": 0}, {"index": 1, "run_s": 1, "exit_code": 1}],
    "onfailure": [{"run_s": 1, "exit_code": 1, "on_term_exit_code": 1}],
    "oom": [{"run_s": 0.1, "oom": True}],
    "per-index": [{"run_s": 1}, {"index": 1, "run_s": 0, "exit_code": 1}],
    "pod-deleted": [{"run_s": 6}],
    "quota": [{"run_s": 4}],
    "retry-then-ok": [{"run_s": 1, "exit_code": 1}],
    "segv-137": [{"run_s": 0.2, "exit_code": 1}],
    "success-policy": [{"run_s": 1}, {"index": 1, "run_s": 30}],
    "suspend-resume": [{"run_s": 4}],
    "term-ignored": [{"run_s": None, "on_term_s": None}],
    "ttl": [{"run_s": 0.5}],
}
SETTINGS = {
    "deadline-pending": WITHOUT_GPUS,
    "no-gpu": WITHOUT_GPUS,
    "no-image": {"missing_images": ["*/absent:*"]},
}
TRACKED = ("active", "succeeded", "failed", "completedIndexes", "failedIndexes")


def recording_of(name):
    return json.loads(next(SCENARIOS.glob(f"{name}*.json")).read_text())


def without_suffix(text):
    """Return a text in which pods have no made-up endings."""
    return re.sub(r"(-\d)-[a-z0-9]{5}\b", r"\1", text)


def conditions_of(status):
    return [
        (known["type"], known["status"], known["reason"], without_suffix(known["message"]))
        for known in (status or {}).get("conditions", ())
    ]


def steps(statuses):
    """Return conditions in the order in which they were seen, each state once."""
    seen = []
    for status in statuses:
        if conditions_of(status) not in seen[-1:]:
            seen.append(conditions_of(status))
    return [state for state in seen if state]


def act(cluster, job, action, pods):
    """Do what was done to the recorded Job."""
    path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{job}"
    match action.rsplit(":", 1)[0].split():
        case ["evict", pod]:
            cluster.pods.evict(job, pods[pod])
        case ["delete", "pod", pod]:
            cluster.pods.delete(job, pods[pod])
        case ["delete", policy]:
            assert cluster.ask("DELETE", f"{path}?propagationPolicy={policy}")[0] == 200
        case [words] if words.startswith("suspend="):
            patch = {"spec": {"suspend": words.endswith("True")}}
            assert cluster.ask("PATCH", path, patch)[0] == 200
        case _:
            pytest.fail(f"unknown action {action}")


def replay(cluster, recording):
    """Submit the recorded Job and let the recorded things happen to it at their times."""
    job, timeline = recording["job"]["metadata"]["name"], recording["timeline"]
    pods = {entry["name"]: int(entry["index"]) for entry in timeline if "pod" in entry}
    status, answer = cluster.ask("POST", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", recording["job"])
    assert status == recording["create_status"]
    if status != 201:
        return answer
    now = 0.0
    for entry in timeline:
        if "action" in entry:
            cluster.clock.advance(entry["t"] - now)
            now = entry["t"]
            act(cluster, job, entry["action"], pods)
    cluster.clock.advance(max(0.5, timeline[-1]["t"] - now + 0.5))
    return answer


@pytest.fixture(params=sorted(PLANS))
def played(request):
    """Return a cluster on which a recorded Job was played again, the recording, and the first answer."""
    name = request.param
    settings = {"namespaces": [NAMESPACE], "clock_start": START, **SETTINGS.get(name, {})}
    with Cluster(**settings) as cluster:
        for plan in PLANS[name]:
            cluster.pods.plan(**plan)
        if name == "quota":
            cluster.quota("q", pods=1)
        recording = recording_of(name)
        yield cluster, recording, replay(cluster, recording)


def test_conditions_come_in_the_order_of_a_real_cluster(played):
    cluster, recording, _ = played

    recorded = steps(entry.get("status") for entry in recording["timeline"] if "job" in entry)

    assert steps(job["status"] for _, job in cluster.changes("jobs")) == recorded


def test_end_is_that_of_a_real_cluster(played):
    cluster, recording, answer = played
    job = cluster.get("jobs", recording["job"]["metadata"]["name"])

    if recording["create_status"] != 201:
        assert answer == recording["error"]
    elif recording["job_final"].get("kind") == "Status":
        assert job is None
    else:
        recorded = recording["job_final"]["status"]
        assert {name: job["status"].get(name) for name in TRACKED} == {
            name: recorded.get(name) for name in TRACKED
        }
        assert conditions_of(job["status"]) == conditions_of(recorded)


def test_pods_that_are_kept_are_those_of_a_real_cluster(played):
    cluster, recording, _ = played

    def kept(pods):
        return sorted((pod["metadata"]["labels"][INDEX], pod["status"]["phase"], ends(pod)) for pod in pods)

    def ends(pod):
        return [
            (word, state.get("reason"), state.get("exitCode"))
            for field in ("initContainerStatuses", "containerStatuses")
            for container in pod["status"].get(field, ())
            for word, state in container["state"].items()
        ]

    assert kept(cluster.pods.list()) == kept(recording.get("pods_final", ()))


def test_events_of_the_job_are_those_of_a_real_cluster(played):
    cluster, recording, _ = played

    def said(events, about):
        return {(event["reason"], without_suffix(event["message"])) for event in events if about(event)}

    told = said(cluster.list("events"), lambda event: event["involvedObject"]["kind"] == "Job")

    assert told == said(recording.get("events", ()), lambda event: event["on"].startswith("Job/"))
