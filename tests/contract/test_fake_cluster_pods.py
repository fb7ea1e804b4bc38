"""Pods of the fake cluster: logs, disruptions, lost nodes, what never starts, queues."""

import itertools
import json
from pathlib import Path

import pytest

from airflows.testing.cluster import Cluster, indexed_job, load_settings
from airflows.testing.cluster.samples import send

DATA = Path(__file__).parents[1] / "data" / "kubernetes"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
QUEUE = "kueue.x-k8s.io/queue-name"
ON_DISRUPTION = {
    "podFailurePolicy": {
        "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    }
}


@pytest.fixture
def cluster():
    with Cluster(seed=7) as cluster:
        yield cluster


def submit(cluster, name="a", nodes=1, labels=None, **fields):
    body = indexed_job(name, nodes, **fields)
    body["metadata"]["labels"] |= labels or {}
    status, answer = cluster.ask("POST", JOBS, body)
    assert status == 201, answer
    return answer


def log_of(cluster, query="", index=0, job="a"):
    (pod,) = [pod for pod in cluster.pods.list(job) if index_of(pod) == index]
    path = f"{PODS}/{pod['metadata']['name']}/log?{query}"
    status, _, content = send(cluster.url, "GET", path, None, {"Authorization": f"Bearer {cluster.token}"})
    return status, content.decode()


def index_of(pod):
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def conditions(found):
    return {known["type"]: known for known in found["status"].get("conditions", ())}


def is_suspended(cluster, job):
    return cluster.get("jobs", job)["spec"]["suspend"]


def running(cluster, **fields):
    submit(cluster, **fields)
    cluster.clock.advance(3)
    assert cluster.get("jobs", "a")["status"]["ready"] == fields.get("nodes", 1)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "one\ntwo\nthree\n"),
        ("tailLines=2", "two\nthree\n"),
        ("limitBytes=5", "one\nt"),
        ("sinceSeconds=1", ""),
        ("container=main", "one\ntwo\nthree\n"),
    ],
)
def test_log_is_cut_as_asked(cluster, query, text):
    cluster.pods.plan(run_s=None, logs=["one", "two", "three"])
    running(cluster)

    assert log_of(cluster, query) == (200, text)


def test_log_lines_have_times_on_request_and_can_start_at_one():
    with Cluster(clock_start=1_800_000_000.0) as cluster:
        cluster.pods.plan(run_s=None, logs=["one"])
        running(cluster)
        cluster.pods.write("a", "two")

        assert log_of(cluster, "timestamps=true")[1].splitlines()[1] == "2027-01-15T08:00:03.000000000Z two"
        assert log_of(cluster, "sinceTime=2027-01-15T08:00:02Z")[1] == "two\n"


def test_followed_log_ends_with_the_container():
    with Cluster(clock_scale=20) as cluster:
        cluster.pods.plan(run_s=20, logs=["one"])
        submit(cluster)
        cluster.wait_for(lambda: cluster.get("jobs", "a")["status"].get("ready"), "a pod that runs")

        assert log_of(cluster, "follow=true") == (200, "one\n")
        assert cluster.pods.list("a")[0]["status"]["containerStatuses"][0]["state"]["terminated"]


def test_log_of_a_waiting_container_is_400(cluster):
    cluster.pods.plan(waiting="ImagePullBackOff", message="Back-off pulling image")
    submit(cluster)
    cluster.clock.advance(1)
    (pod,) = cluster.pods.list("a")

    status, text = log_of(cluster)

    name = pod["metadata"]["name"]
    assert status == 400
    assert json.loads(text)["message"] == (
        f'container "main" in pod "{name}" is waiting to start: ImagePullBackOff'
    )
    assert cluster.get("jobs", "a")["status"]["active"] == 1


def test_last_lines_stand_for_the_message_of_a_failure(cluster):
    cluster.pods.plan(run_s=1, exit_code=3, logs=["so far so good", "boom"])
    submit(cluster, pod={"main": {"terminationMessagePolicy": "FallbackToLogsOnError"}})
    cluster.clock.advance(10)

    (container,) = cluster.pods.list("a")[0]["status"]["containerStatuses"]
    assert container["state"]["terminated"]["message"] == "so far so good\nboom\n"


def test_missing_secret_is_waited_for(cluster):
    env = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}]
    submit(cluster, pod={"main": {"env": env}})
    cluster.clock.advance(1)
    (container,) = cluster.pods.list("a")[0]["status"]["containerStatuses"]
    assert container["state"]["waiting"]["message"] == 'secret "absent" not found'

    cluster.put("secrets", {"metadata": {"name": "absent"}, "stringData": {"k": "v"}})
    cluster.clock.advance(30)

    assert "Complete" in conditions(cluster.get("jobs", "a"))


def test_node_selectors_taints_and_resources_decide_where_a_pod_goes():
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    nodes = {"cpu1": {"labels": {"kind": "cpu"}}, "gpu1": {"nvidia.com/gpu": 1, "taints": [taint]}}
    with Cluster(nodes=nodes) as cluster:
        cluster.pods.plan(run_s=None)
        limits = {"main": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}
        tolerations = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}
        submit(cluster, "a", pod={**limits, **tolerations})
        submit(cluster, "b", pod={**limits, **tolerations})
        submit(cluster, "c", pod={"nodeSelector": {"kind": "cpu"}})
        cluster.clock.advance(3)

        def node(job):
            return cluster.pods.list(job)[0]["spec"].get("nodeName")

        assert [node(job) for job in "abc"] == ["gpu1", None, "cpu1"]
        words = conditions(cluster.pods.list("b")[0])["PodScheduled"]["message"]
        assert "0/2 nodes are available: 2 Insufficient nvidia.com/gpu" in words
        cluster.pods.end("a")
        cluster.clock.advance(3)
        assert node("b") == "gpu1"


def test_missing_claim_keeps_a_pod_unscheduled(cluster):
    volume = {"name": "w", "persistentVolumeClaim": {"claimName": "work"}}
    submit(cluster, pod={"volumes": [volume]})
    cluster.clock.advance(1)

    words = conditions(cluster.pods.list("a")[0])["PodScheduled"]["message"]
    assert 'persistentvolumeclaim "work" not found' in words


def test_job_that_no_node_took_is_gone_soon_after_it_is_deleted(cluster):
    cluster.pods.plan(unschedulable="0/3 nodes are available.")
    submit(cluster, podReplacementPolicy="Failed")
    cluster.clock.advance(2)
    cluster.ask("DELETE", f"{JOBS}/a?propagationPolicy=Foreground")
    cluster.clock.advance(3)

    assert cluster.list("jobs") == []
    assert cluster.pods.list("a") == []


@pytest.mark.parametrize(
    ("how", "reason"), [("preempt", "PreemptionByScheduler"), ("pressure", "TerminationByKubelet")]
)
def test_disruption_fails_the_job_by_its_rule(cluster, how, reason):
    cluster.pods.plan(run_s=None)
    running(cluster, nodes=2, **ON_DISRUPTION)

    getattr(cluster.pods, how)("a", index=1)
    reasons = [conditions(pod)["DisruptionTarget"]["reason"] for pod in cluster.pods.list("a")[1:]]
    cluster.clock.advance(10)

    failed = conditions(cluster.get("jobs", "a"))["Failed"]
    assert reasons == [reason]
    assert failed["reason"] == "PodFailurePolicy"
    assert failed["message"].endswith("has condition DisruptionTarget matching FailJob rule at index 0")


def test_only_node_that_is_lost_leaves_its_pods_running(cluster):
    """As recorded: Unknown after 43 s, nothing ready, no eviction while no node is healthy."""
    cluster.pods.plan(run_s=None)
    running(cluster, nodes=2, **ON_DISRUPTION)

    cluster.nodes.lose("node1")
    cluster.clock.advance(600)

    status = cluster.get("jobs", "a")["status"]
    assert conditions(cluster.get("nodes", "node1"))["Ready"]["status"] == "Unknown"
    assert (status["active"], status["ready"]) == (2, 0)
    assert [pod["status"]["phase"] for pod in cluster.pods.list("a")] == ["Running", "Running"]
    assert log_of(cluster)[0] == 500


def test_node_that_is_removed_fails_its_pods(cluster):
    cluster.pods.plan(run_s=None)
    running(cluster, nodes=2, **ON_DISRUPTION)

    cluster.nodes.remove("node1")
    cluster.clock.advance(40)
    assert "Failed" not in conditions(cluster.get("jobs", "a"))
    cluster.clock.advance(20)

    assert conditions(cluster.get("jobs", "a"))["Failed"]["reason"] == "PodFailurePolicy"


def test_pods_of_a_lost_node_stay_terminating_while_another_is_healthy():
    with Cluster(nodes={"n1": {}, "n2": {"labels": {"spare": "yes"}, "taints": [{"key": "x"}]}}) as cluster:
        cluster.pods.plan(run_s=None)
        running(cluster, **ON_DISRUPTION)

        cluster.nodes.lose("n1")
        cluster.clock.advance(400)

        (pod,) = cluster.pods.list("a")
        assert conditions(pod)["DisruptionTarget"]["reason"] == "DeletionByTaintManager"
        assert "deletionTimestamp" in pod["metadata"]
        assert cluster.get("jobs", "a")["status"]["terminating"] == 1


def test_same_name_is_taken_until_the_last_pod_is_gone(cluster):
    cluster.pods.plan(run_s=None, on_term_s=None)
    running(cluster, pod={"terminationGracePeriodSeconds": 60})
    cluster.ask("DELETE", f"{JOBS}/a?propagationPolicy=Foreground")
    cluster.clock.advance(50)

    assert cluster.ask("POST", JOBS, indexed_job("a"))[0] == 409
    cluster.clock.advance(20)
    assert cluster.ask("POST", JOBS, indexed_job("a"))[0] == 201


def test_backoff_between_retries_doubles(cluster):
    cluster.pods.plan(run_s=0, exit_code=1)
    submit(cluster, backoffLimit=3)
    cluster.clock.advance(200)

    born = [pod["metadata"]["creationTimestamp"] for pod in cluster.pods.list("a")]
    seconds = [int(text[14:16]) * 60 + int(text[17:19]) for text in born]
    waits = [(later - earlier) % 3600 for earlier, later in itertools.pairwise(seconds)]
    assert [round(wait, -1) for wait in waits] == [10, 20, 40]


def test_queue_admits_by_quota_and_priority_as_recorded():
    """The recorded course: a runs, b waits, hi preempts a; the misconfigured and the too big wait for ever."""
    recorded = {
        item["tag"]: dict(_reserved(item))
        for item in json.loads((DATA / "kueue.json").read_text())
        if "tag" in item
    }
    kueue = {"queues": {"team-q": "cq"}, "quotas": {"cq": {"cpu": "400m"}}, "priorities": {"high": 100}}
    with Cluster(kueue=kueue) as cluster:
        cluster.pods.plan(run_s=None)

        def queued(name, cpu="200m", queue="team-q", **labels):
            main = {"resources": {"requests": {"cpu": cpu}}}
            submit(cluster, name, 2, {QUEUE: queue, **labels}, pod={"main": main})
            cluster.clock.advance(2)

        def seen(*names):
            return {
                name: value
                for name, value in _reserved({"workloads": map(_brief, cluster.list("workloads"))})
                if name in names
            }

        queued("q-a")
        queued("q-b")
        assert seen("q-a", "q-b") == recorded["b waits for quota"]
        queued("q-hi", **{"kueue.x-k8s.io/priority-class": "high"})
        assert seen("q-a", "q-b", "q-hi") == recorded["high priority preempts a"]
        assert (is_suspended(cluster, "q-a"), is_suspended(cluster, "q-hi")) == (True, False)
        assert "failed" not in cluster.get("jobs", "q-a")["status"]
        queued("q-big", cpu="1")
        queued("q-nope", queue="nope")
        assert seen("q-big", "q-nope") == {name: recorded["later"][name] for name in ("q-big", "q-nope")}
        for index in (0, 1):
            cluster.pods.end("q-hi", index)
        cluster.clock.advance(20)
        assert not is_suspended(cluster, "q-a")


def _brief(workload):
    listed = [
        [known[key] for key in ("type", "status", "reason")] for known in workload["status"]["conditions"]
    ]
    return [workload["metadata"]["name"], None, [[*known, ""] for known in listed]]


def _reserved(item):
    for name, _, listed in item["workloads"]:
        (reserved,) = [(status, reason) for kind, status, reason, *_ in listed if kind == "QuotaReserved"]
        yield name.removeprefix("job-").rsplit("-", 1)[0], reserved


def test_job_of_a_queue_that_somebody_lets_go_is_held_again():
    with Cluster(kueue={"quotas": {"cq": {}}}) as cluster:
        submit(cluster, "a", labels={QUEUE: "nope"})
        cluster.clock.advance(1)

        cluster.ask("PATCH", f"{JOBS}/a", {"spec": {"suspend": False}})
        cluster.clock.advance(5)

        assert is_suspended(cluster, "a")
        assert not [pod for pod in cluster.pods.list("a") if pod["status"]["phase"] == "Running"]


def test_queue_that_comes_later_lets_its_jobs_go():
    with Cluster(kueue={"quotas": {"cq": {}}}) as cluster:
        submit(cluster, "a", labels={QUEUE: "late"})
        cluster.clock.advance(1)
        (workload,) = cluster.list("workloads")
        assert conditions(workload)["QuotaReserved"]["message"] == "LocalQueue late doesn't exist"

        cluster.kueue.add_queue("late", "cq")
        cluster.clock.advance(20)

        assert "Complete" in conditions(cluster.get("jobs", "a"))


def test_name_that_no_queue_can_have_is_refused():
    with Cluster(kueue={}) as cluster:
        body = indexed_job("a")
        body["metadata"]["labels"][QUEUE] = "Not_A_Name"
        status, answer = cluster.ask("POST", JOBS, body)

    assert (status, answer["reason"]) == (403, "Forbidden")
    assert 'admission webhook "vjob.kb.io" denied the request' in answer["message"]


def test_label_of_a_queue_is_inert_without_kueue(cluster):
    submit(cluster, "a", labels={QUEUE: "team-q"})
    cluster.clock.advance(20)

    assert "Complete" in conditions(cluster.get("jobs", "a"))


def test_requests_steer_it_while_it_serves(cluster):
    def steer(path, **body):
        return cluster.ask("POST", f"/__fake__/{path}", body)[0]

    assert steer("plans", job="a", run_s=None) == 200
    submit(cluster, **ON_DISRUPTION)
    assert steer("advance", seconds=3) == 200
    assert steer("pods/evict", job="a") == 200
    assert steer("advance", seconds=5) == 200
    assert steer("faults", kind="unavailable", route="jobs/list") == 200

    assert cluster.ask("GET", JOBS)[0] == 503
    assert "Failed" in conditions(cluster.get("jobs", "a"))
    assert cluster.ask("GET", "/__fake__/state")[1]["requests"]["by_route"]["jobs/list"] == 1
    assert steer("pods/evict", job="nobody") == 400
    assert steer("nonsense") == 404


def test_script_in_yaml_sets_it_up(tmp_path):
    script = tmp_path / "cluster.yaml"
    script.write_text("plans:\n- {job: '*-0003-a0', plan: {run_s: 5, exit_code: 3}}\nnamespaces: [ml]\n")
    settings = load_settings(script, seed=3)

    assert (settings.seed, settings.plans[0].plan.exit_code, settings.namespaces) == (3, 3, ["ml"])


def test_script_with_an_unknown_key_is_refused(tmp_path):
    script = tmp_path / "cluster.yaml"
    script.write_text("plan: []\n")

    with pytest.raises(ValueError, match="plan: Extra inputs are not permitted"):
        load_settings(script)


def test_many_jobs_end_each_and_are_listed_at_once(cluster):
    cluster.pods.plan(run_s=60)
    for number in range(200):
        submit(cluster, f"job-{number}")
    cluster.clock.advance(100)

    _, answer = cluster.ask("GET", f"{JOBS}?limit=500")

    assert [job["status"]["succeeded"] for job in answer["items"]] == [1] * 200
