"""What Jobs and pods say, told from what a real cluster recorded."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflows.backends.base import Phase
from airflows.backends.kubernetes import states
from airflows.backends.kubernetes.logs import LogKeeper
from airflows.backends.kubernetes.pods import pod_of, seconds
from airflows.backends.kubernetes.reasons import Reasons
from airflows.backends.kubernetes.refusals import ApiError
from airflows.backends.kubernetes.states import Known
from airflows.backends.kubernetes.watching import Watcher, interval_s
from airflows.failures import classify
from airflows.trial import Handle, Reason

SCENARIOS = Path(__file__).parents[1] / "data" / "kubernetes" / "scenarios"


def scenario(name):
    return json.loads((SCENARIOS / f"{name}.json").read_text())


class Replay:
    """The cluster of a recording: what its lists answer as the recording goes on."""

    namespace = "scen"

    def __init__(self, name):
        self.told = scenario(name)
        self.name = self.told["job"]["metadata"]["name"]
        self.job, self.pods, self.at = dict(self.told["job"]), {}, 0.0
        self.suspended = bool(self.job["spec"].get("suspend"))

    def steps(self):
        for entry in self.told["timeline"]:
            self.at = entry["t"]
            if "job" in entry:
                self._job(entry)
            elif "pod" in entry:
                self._pod(entry)
            elif entry.get("action", "").startswith("suspend="):
                self.suspended = entry["action"].startswith("suspend=True")
                continue
            else:
                continue
            yield

    def _job(self, entry):
        if entry["job"] == "DELETED":
            self.job = None
            return
        spec = {**self.told["job"]["spec"], "suspend": self.suspended}
        going = {"deletionTimestamp": "2026-11-30T04:00:00Z"} if entry.get("deletionTimestamp") else {}
        metadata = {**self.told["job"]["metadata"], **going}
        self.job = {"metadata": metadata, "spec": spec, "status": entry.get("status") or {}}

    def _pod(self, entry):
        if entry["pod"] == "DELETED":
            self.pods.pop(entry["name"], None)
            return
        conditions = []
        for text in entry["conds"]:
            kind, _, rest = text.partition("=")
            status, _, reason = rest.partition("(")
            conditions.append({"type": kind, "status": status, "reason": reason.rstrip(")")})
        state = [{"name": "main", "state": entry["state"]}] if entry["state"] else []
        self.pods[entry["name"]] = {
            "metadata": {
                "name": entry["name"],
                "labels": {"job-name": self.name, "batch.kubernetes.io/job-completion-index": entry["index"]},
                "creationTimestamp": "2026-11-30T05:00:00Z",
                **({"deletionTimestamp": "2026-11-30T04:00:00Z"} if entry.get("deleting") else {}),
            },
            "spec": {"nodeName": "node1"},
            "status": {"phase": entry["phase"], "containerStatuses": state, "conditions": conditions},
        }

    # As much of `Api` as a watcher asks.

    def items(self, path, **query):
        del query
        if path.endswith("/jobs"):
            return [self.job] if self.job else []
        return list(self.pods.values()) if path.endswith("/pods") else []

    def get(self, path):
        del path
        if self.job is None:
            raise ApiError(404, "NotFound", "gone")
        return self.job


class NoCopies(LogKeeper):
    def follow(self, handle, pod):
        pass


def watch(name, tmp_path, *, every=1):
    """Return the phases seen and the last observation of a recording that is looked at now and then."""
    cluster = Replay(name)
    watcher = Watcher(
        cluster,
        lambda: 1000 * cluster.at,
        NoCopies(cluster, tmp_path),
        Reasons(cluster),
        lambda _h, _why: None,
        1e9,
    )
    handle, phases, seen = Handle(cluster.name), [], None
    for number, _ in enumerate(cluster.steps()):
        if number % every:
            continue
        seen = watcher.poll([handle]).get(handle)
        if seen is not None and (not phases or phases[-1] is not seen.phase):
            phases.append(seen.phase)
    cluster.at += 100
    return phases, watcher.poll([handle]).get(handle)


@pytest.mark.parametrize("every", [1, 3, 7])
@pytest.mark.parametrize(
    ("name", "code", "reason", "words"),
    [
        ("one-fails", 1, Reason.ERROR, ""),
        ("exit42-failjob", 42, Reason.ERROR, ""),
        ("segv-137", 1, Reason.ERROR, ""),
        ("disrupt-failjob", 143, Reason.PREEMPTED, "has condition DisruptionTarget"),
        ("deadline", None, Reason.TIMED_OUT, ""),
        ("deadline-pending", None, Reason.TIMED_OUT, "passed before it ran"),
        ("oom", 137, Reason.OUT_OF_MEMORY, "more memory than it may"),
        ("bad-command", 128, Reason.INVALID, "/no/such/binary"),
    ],
)
def test_a_recorded_failure_is_told_as_what_it_was(name, code, reason, words, every, tmp_path):
    phases, seen = watch(name, tmp_path, every=every)

    assert seen.phase is Phase.ENDED
    assert phases == sorted(phases, key=[Phase.QUEUED, Phase.RUNNING, Phase.ENDED].index)
    assert classify(seen, []).reason is reason
    assert code is None or every > 3 or seen.exit_code == code
    assert words == "" or every > 3 or words in seen.detail


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("name", ["ok", "success-policy", "term-ignored", "nofinal-log"])
def test_recordings_are_followed_to_their_ends(name, every, tmp_path):
    told = scenario(name)
    conditions = {
        c["type"] for c in told["job_final"]["status"].get("conditions", []) if c["status"] == "True"
    }

    _, seen = watch(name, tmp_path, every=every)

    assert (seen.phase is Phase.ENDED and seen.exit_code == 0) == ("Complete" in conditions)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.json")), ids=lambda path: path.stem)
def test_no_recorded_moment_is_a_surprise(path, tmp_path):
    if not scenario(path.stem)["timeline"]:
        assert scenario(path.stem)["create_status"] == 422
        return

    phases, seen = watch(path.stem, tmp_path)

    assert phases
    assert seen is not None


def test_a_suspended_job_waits_and_runs_again(tmp_path):
    phases, _ = watch("suspend-resume", tmp_path)

    assert phases == [Phase.QUEUED, Phase.RUNNING, Phase.QUEUED, Phase.RUNNING, Phase.ENDED]


def test_a_job_deleted_in_the_foreground_is_seen_going_and_gone(tmp_path):
    phases, seen = watch("delete-fg", tmp_path)

    assert Phase.UNKNOWN in phases
    assert seen.word == "CANCELLED"
    assert seen.exit_code is None


def test_a_job_that_vanishes_is_lost(tmp_path):
    _, seen = watch("delete-bg", tmp_path)

    assert seen.word == "LOST"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-image", "ErrImageNeverPull"),
        ("no-secret", "CreateContainerConfigError"),
        ("no-gpu", "Unschedulable"),
    ],
)
def test_why_a_pod_does_not_start_is_shown(name, words):
    told = scenario(name)
    seen = states.observe(Known(told["job_final"], [pod_of(pod) for pod in told["pods_final"]]))

    assert seen.phase is Phase.QUEUED
    assert words in seen.detail


def test_pods_that_a_quota_forbids_are_explained():
    told = scenario("quota")
    job = {**told["job_final"], "status": {"startTime": "2026-11-30T04:00:00Z", "active": 1}}

    assert states.lacks_pods(job)


def test_an_init_container_that_fails_gives_the_exit_code():
    told = scenario("init-fails")
    seen = states.observe(Known(told["job_final"], [pod_of(pod) for pod in told["pods_final"]]))

    assert (seen.phase, seen.exit_code, seen.word) == (Phase.ENDED, 7, "")


def ended_pod(index=0, code=1, at="2026-11-30T04:00:05Z", **terminated):
    state = {"exitCode": code, "startedAt": "2026-11-30T04:00:00Z", "finishedAt": at, **terminated}
    return pod_of(
        {
            "metadata": {
                "name": f"pod-{index}",
                "uid": f"uid-{index}",
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            },
            "spec": {"nodeName": f"node{index}"},
            "status": {
                "phase": "Failed",
                "containerStatuses": [{"name": "main", "state": {"terminated": state}}],
            },
        }
    )


def failed_job(reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit", nodes=2):
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-11-30T04:00:08Z",
    }
    return {"spec": {"completions": nodes}, "status": {"conditions": [condition]}}


def test_the_first_node_that_failed_is_the_cause():
    pods = [ended_pod(0, 143, "2026-11-30T04:00:06Z"), ended_pod(1, 11, "2026-11-30T04:00:05Z")]

    seen = states.observe(Known(failed_job(), pods))

    assert (seen.exit_code, seen.node, seen.host) == (11, 1, "node1")


@pytest.mark.parametrize(
    "message", ["", "Pod ml/x has condition DisruptionTarget matching FailJob rule at index 0"]
)
def test_a_node_that_fails_in_the_wake_of_a_preempted_one_is_not_the_cause(message):
    echo = ended_pod(0, 1, "2026-11-30T04:00:04Z")
    preempted = replace(ended_pod(1, 143, "2026-11-30T04:00:06Z"), disrupted_by="PreemptionByScheduler")
    job = failed_job("PodFailurePolicy", message) if message else failed_job()

    seen = states.observe(Known(job, [echo, preempted]))

    assert classify(seen, []).reason is Reason.PREEMPTED
    assert (seen.node, seen.host) == (1, "node1")


def test_what_befell_a_pod_that_was_replaced_is_not_the_cause():
    before = replace(ended_pod(0, 143), uid="before", created_at=1.0, disrupted_by="EvictionByEvictionAPI")
    after = replace(ended_pod(0, 7), created_at=2.0)

    assert states.observe(Known(failed_job(nodes=1), [before, after])).exit_code == 7
    assert classify(states.observe(Known(failed_job(nodes=1), [before, after])), []).reason is Reason.ERROR


def test_of_two_ends_in_one_second_the_signalled_one_is_the_echo():
    seen = states.observe(Known(failed_job(), [ended_pod(0, 143), ended_pod(1, 3)]))

    assert (seen.exit_code, seen.node) == (3, 1)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("invalid", Reason.INVALID),
        ("code_damaged", Reason.CODE_DAMAGED),
        ("no_rendezvous", Reason.NO_RENDEZVOUS),
    ],
)
def test_only_a_word_of_the_preamble_makes_an_exit_code_our_own(told, reason):
    said = ended_pod(0, 64, message=f"airflows-word: {told}\n")
    silent = ended_pod(0, 64)

    assert classify(states.observe(Known(failed_job(), [said])), []).reason is reason
    assert states.observe(Known(failed_job(), [silent])).word == ""


def test_the_checkpoint_that_an_attempt_started_from_is_told():
    pod = ended_pod(0, 1, message="airflows-resumed-from: /mnt/c/checkpoint-3\n")

    assert states.observe(Known(failed_job(), [pod])).resumed_from == "/mnt/c/checkpoint-3"


def test_a_lost_machine_is_told_from_a_preemption():
    message = "Pod ml/x has condition DisruptionTarget matching FailJob rule at index 0"
    gone = {
        "metadata": {"name": "x"},
        "status": {
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]
        },
    }

    by_node = states.observe(Known(failed_job("PodFailurePolicy", message), [pod_of(gone)]))
    unseen = states.observe(Known(failed_job("PodFailurePolicy", message), []))

    assert classify(by_node, []).reason is Reason.NODE_FAILED
    assert classify(unseen, []).reason is Reason.PREEMPTED


def test_pods_that_were_deleted_leave_no_exit_code():
    seen = states.observe(Known(failed_job(), []))

    assert (seen.exit_code, seen.word) == (None, "LOST")
    assert "deleted before they ended" in seen.detail


def test_an_unknown_condition_changes_nothing():
    job = {"spec": {"completions": 1}, "status": {"conditions": [{"type": "Brandnew", "status": "True"}]}}

    assert states.observe(Known(job, [])).phase is Phase.QUEUED


def test_half_a_group_waits_and_says_for_whom():
    running = pod_of(
        {
            "metadata": {"name": "a", "annotations": {"batch.kubernetes.io/job-completion-index": "0"}},
            "status": {
                "containerStatuses": [
                    {"name": "main", "state": {"running": {"startedAt": "2026-11-30T04:00:00Z"}}}
                ]
            },
        }
    )
    seen = states.observe(Known({"spec": {"completions": 2}}, [running]))

    assert seen.phase is Phase.QUEUED
    assert "1 of 2 nodes have started, and wait for node 1" in seen.detail


def test_times_are_seconds_and_never_is_none():
    assert seconds("1970-01-01T00:01:00Z") == 60
    assert seconds("1970-01-01T00:00:00Z") is None
    assert seconds(None) is None


def test_looks_become_rare_and_dear_ones_rarer():
    assert [interval_s(0), interval_s(100), interval_s(1e6)] == [1, 10, 30]
    assert interval_s(0, runs=500) == 5


# Kueue


def workloads():
    recorded = json.loads((SCENARIOS.parent / "kueue.json").read_text())
    for moment in recorded:
        for name, _labels, conditions in moment["workloads"]:
            told = [dict(zip(("type", "status", "reason", "message"), c, strict=True)) for c in conditions]
            yield name, {"spec": {"queueName": "team-q"}, "status": {"conditions": told}}


@pytest.mark.parametrize(
    "words",
    [
        "it waits for room in queue team-q: couldn't assign flavors",
        "queue team-q is not set up: LocalQueue other doesn't exist",
        "queue team-q can never hold it: couldn't assign flavors",
        "Kueue stopped it (Preempted to accommodate",
        "queue team-q has room for it",
    ],
)
def test_what_kueue_said_is_said_in_words(words):
    assert any(states.queue_words(one).startswith(words) for _, one in workloads())
