"""The fake API server's answers, beside recordings of a real one where there are some."""

import gzip
import http.client
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from airflows.testing.cluster import Cluster, indexed_job
from airflows.testing.cluster.samples import send

RECORDINGS = sorted((Path(__file__).parents[1] / "data" / "kubernetes" / "recordings").glob("*.json"))
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# Other in each cluster, or a matter of how long it has run.
VOLATILE = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastProbeTime",
    "lastTransitionTime",
    "time",
    "managedFields",
    "continue",
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
)
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def cluster():
    with Cluster(seed=7) as cluster:
        yield cluster


def lasting(value):
    """Return an answer without what differs from cluster to cluster."""
    if isinstance(value, dict):
        return {key: lasting(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [lasting(item) for item in value]
    return UID.sub("UID", value) if isinstance(value, str) else value


def submit(cluster, name="a", nodes=1, **fields):
    status, answer = cluster.ask("POST", JOBS, indexed_job(name, nodes, **fields))
    assert status == 201, answer
    return answer


def watch(cluster, query, seconds=1):
    """Return the events of a watch that ends by itself."""
    path = f"{JOBS}?watch=true&timeoutSeconds={seconds}&{query}"
    headers = {"Authorization": f"Bearer {cluster.token}"}
    status, _, content = send(cluster.url, "GET", path, None, headers)
    assert status == 200
    return [json.loads(line) for line in content.splitlines()]


def test_recorded_requests_get_the_recorded_answers():
    """The requests that a probe sent to a real 1.36 in this order, with what it sent between them."""
    with Cluster(namespaces=["probe"]) as cluster:
        jobs = "/apis/batch/v1/namespaces/probe/jobs"
        between = {
            "013": [("POST", jobs, _job_like("t-2", sweep="s2"))],
            "015": [("PATCH", f"{jobs}/t-1", {"metadata": {"annotations": {"a": "1", "b": "2"}}})],
            "016": [("PATCH", f"{jobs}/t-1", {"metadata": {"annotations": {"c": "3", "d": "4"}}})],
            "024": [
                ("POST", jobs, _job_like("t-3", sweep="s9")),
                ("POST", jobs, _job_like("t-4", sweep="s8")),
            ],
            "028": [("POST", jobs, _job_like("t-5"))],
        }
        for path in RECORDINGS:
            recorded = json.loads(path.read_text())
            if path.name.startswith("015"):
                cluster.clock.advance(1)
            for request in between.get(path.name[:3], ()):
                assert cluster.ask(*request)[0] in (200, 201)
            request = recorded["request"]
            kind = {"Content-Type": request["content_type"]} if request["content_type"] else {}
            status, answer = cluster.ask(request["method"], request["path"], request["body"], kind)
            if "name-61" in path.name:
                cluster.ask("DELETE", f"{jobs}/{'x' * 61}?propagationPolicy=Background")

            assert status == recorded["status"], path.name
            assert _without_causes(lasting(answer)) == _without_causes(lasting(recorded["response"])), (
                path.name
            )


def _without_causes(answer):
    """Leave out how often a cause is told: the message has each once."""
    if answer.get("details", {}).get("causes"):
        answer["details"]["causes"] = {json.dumps(cause) for cause in answer["details"]["causes"]}
    for ours in ("gitCommit", "goVersion", "emulationMajor", "emulationMinor", "buildDate"):
        answer.pop(ours, None)
    for name in ("minCompatibilityMajor", "minCompatibilityMinor"):
        answer.pop(name, None)
    return answer


def _job_like(name, sweep="s1"):
    labels = {"sweep": sweep, "trial": name}
    body = indexed_job(name, 2, suspend=True, pod={"subdomain": name, "main": {"image": "img"}})
    body["metadata"]["labels"] = body["spec"]["template"]["metadata"]["labels"] = labels
    return body


def test_kubeconfig_leads_to_the_server(cluster):
    config = yaml.safe_load(cluster.kubeconfig.read_text())

    assert config["clusters"][0]["cluster"]["server"] == cluster.url
    assert config["users"][0]["user"]["token"] == cluster.token
    assert cluster.kubeconfig.stat().st_mode & 0o077 == 0


def test_unknown_token_is_401(cluster):
    status, answer = cluster.ask("GET", JOBS, headers={"Authorization": "Bearer wrong"})

    assert (status, answer["reason"], answer["message"]) == (401, "Unauthorized", "Unauthorized")


def test_expired_token_is_renewed_in_the_kubeconfig(cluster):
    cluster.renew("second")

    assert cluster.ask("GET", JOBS)[0] == 401
    assert cluster.ask("GET", JOBS, headers={"Authorization": "Bearer second"})[0] == 200
    assert "second" in cluster.kubeconfig.read_text()


def test_rbac_names_verb_resource_and_namespace(cluster):
    cluster.access.forbid("create", "jobs.batch")

    status, answer = cluster.ask("POST", JOBS, indexed_job("a"))

    assert status == 403
    assert answer["message"] == (
        'jobs.batch is forbidden: User "admin" cannot create resource "jobs" in API group "batch"'
        ' in the namespace "default"'
    )


@pytest.mark.parametrize(("verb", "allowed"), [("list", True), ("create", False)])
def test_access_review_says_what_rules_say(verb, allowed):
    rules = [{"verbs": ["list"], "resources": ["jobs.batch"], "namespaces": ["default"]}]
    with Cluster(users=[{"rules": rules}]) as cluster:
        attributes = {"verb": verb, "group": "batch", "resource": "jobs", "namespace": "default"}

        status, answer = cluster.ask("POST", REVIEWS, {"spec": {"resourceAttributes": attributes}})

        assert (status, answer["status"]["allowed"]) == (201, allowed)


def test_missing_namespace_is_404_to_an_admin(cluster):
    status, answer = cluster.ask("POST", JOBS.replace("default", "nope"), indexed_job("a"))

    assert (status, answer["message"]) == (404, 'namespaces "nope" not found')


def test_delete_without_policy_orphans_the_pods(cluster):
    submit(cluster)
    cluster.clock.advance(1)

    assert cluster.ask("DELETE", f"{JOBS}/a")[0] == 200
    cluster.clock.advance(1)

    assert cluster.get("jobs", "a") is None
    assert len(cluster.list("pods")) == 1


def test_continue_gives_each_object_once(cluster):
    for name in "abcde":
        submit(cluster, name)
    seen, token = [], ""
    while True:
        _, page = cluster.ask("GET", f"{JOBS}?limit=2&continue={token}")
        seen += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break

    assert seen == list("abcde")


def test_a_list_has_what_fits_its_selector_after_labels_have_changed(cluster):
    for name in "abcd":
        submit(cluster, name)
    cluster.ask("DELETE", f"{JOBS}/d?propagationPolicy=Background")
    for name, labels in {"a": {"size": "1"}, "b": {"size": "2", "old": "yes"}, "c": {"size": "2"}}.items():
        cluster.ask("PATCH", f"{JOBS}/{name}", {"metadata": {"labels": labels}})
    cluster.ask("PATCH", f"{JOBS}/c", {"metadata": {"labels": {"size": "3"}}})

    def listed(selector):
        _, page = cluster.ask("GET", f"{JOBS}?labelSelector={quote(selector)}")
        return "".join(item["metadata"]["name"] for item in page["items"])

    assert listed("size=2") == "b"
    assert listed("size in (1,3)") == "ac"
    assert listed("size in (1,2),old") == "b"
    assert listed("size in (1,2),!old") == "a"
    assert listed("size!=2") == "ac"
    assert listed("size notin (1,2)") == "c"
    assert listed("trial=d") == listed("size=4") == ""
    assert listed("trial in (a,d)") == "a"


def test_stale_continue_token_is_410_with_a_fresh_one(cluster):
    for name in "abc":
        submit(cluster, name)
    _, page = cluster.ask("GET", f"{JOBS}?limit=1")
    cluster.expire_history()

    status, answer = cluster.ask("GET", f"{JOBS}?limit=1&continue={page['metadata']['continue']}")

    assert (status, answer["reason"]) == (410, "Expired")
    _, rest = cluster.ask("GET", f"{JOBS}?continue={answer['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c"]


def test_watch_from_before_the_history_is_an_error_event(cluster):
    version = submit(cluster)["metadata"]["resourceVersion"]
    cluster.expire_history()

    (event,) = watch(cluster, f"resourceVersion={version}")

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_history_has_a_window():
    with Cluster(history=3) as cluster:
        version = submit(cluster)["metadata"]["resourceVersion"]
        cluster.clock.advance(10)

        assert watch(cluster, f"resourceVersion={version}")[0]["type"] == "ERROR"


def test_watch_tells_what_happened_since_a_version(cluster):
    version = submit(cluster)["metadata"]["resourceVersion"]
    cluster.clock.advance(20)

    events = watch(cluster, f"resourceVersion={version}&allowWatchBookmarks=true")

    assert {event["type"] for event in events[:-1]} == {"MODIFIED"}
    assert events[-2]["object"]["status"]["succeeded"] == 1
    assert events[-1]["type"] == "BOOKMARK"


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        ("1.24.0", {"completionMode"}),
        ("1.27.3", {"completionMode", "podFailurePolicy"}),
        ("1.36.2", {"completionMode", "podFailurePolicy", "podReplacementPolicy"}),
    ],
)
def test_old_servers_drop_young_fields_without_a_word(version, kept):
    policy = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    with Cluster(version=version) as cluster:
        made = submit(cluster, podFailurePolicy=policy, podReplacementPolicy="Failed")["spec"]

    assert kept == {"completionMode", "podFailurePolicy", "podReplacementPolicy"} & made.keys()


def test_old_servers_have_no_index_label():
    with Cluster(version="1.26.0") as cluster:
        submit(cluster)
        cluster.clock.advance(1)
        (pod,) = cluster.list("pods")

    assert "batch.kubernetes.io/job-completion-index" not in pod["metadata"]["labels"]
    assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
    assert pod["metadata"]["labels"]["job-name"] == "a"


def test_unknown_fields_are_dropped_with_a_warning(cluster):
    body = json.dumps({**indexed_job("a"), "extra": 1})
    headers = {"Authorization": f"Bearer {cluster.token}"}
    status, told, content = send(cluster.url, "POST", JOBS, json.loads(body), headers)

    assert (status, told["warning"]) == (201, '299 - "unknown field "extra""')
    assert "extra" not in json.loads(content)


def test_quota_on_jobs_is_403(cluster):
    cluster.quota("jobs", {"count/jobs.batch": 1})
    submit(cluster)

    status, answer = cluster.ask("POST", JOBS, indexed_job("b"))

    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'jobs.batch "b" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1,'
        " used: count/jobs.batch=1, limited: count/jobs.batch=1"
    )


def test_dropped_reply_has_its_effect(cluster):
    cluster.faults.add("dropped_reply", route="jobs/create", times=1)

    with pytest.raises(http.client.RemoteDisconnected):
        cluster.ask("POST", JOBS, indexed_job("a"))

    assert cluster.ask("POST", JOBS, indexed_job("a"))[0] == 409


@pytest.mark.parametrize(
    ("kind", "status"),
    [("rate_limited", 429), ("internal", 500), ("unavailable", 503), ("unauthorized", 401)],
)
def test_faults_answer_instead_as_often_as_told(cluster, kind, status):
    cluster.faults.add(kind, route="jobs/list", times=2)

    assert [cluster.ask("GET", JOBS)[0] for _ in range(3)] == [status, status, 200]
    assert cluster.ask("GET", PODS)[0] == 200


def test_proxy_answers_html(cluster):
    cluster.faults.add("bad_gateway", route="jobs/list")

    status, told, content = send(cluster.url, "GET", JOBS)

    assert (status, told["content-type"]) == (502, "text/html")
    assert content.startswith(b"<html>")


def test_watch_can_begin_with_an_error(cluster):
    cluster.faults.add("watch_error")

    (event,) = watch(cluster, "resourceVersion=0")

    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
    assert event["object"]["details"] == {"retryAfterSeconds": 1}


def test_cut_watch_breaks_amid_an_event(cluster):
    submit(cluster)
    cluster.faults.add("cut_reply", route="jobs/watch")

    with pytest.raises(http.client.IncompleteRead):
        watch(cluster, "resourceVersion=0")


def test_error_after_the_effect_leaves_the_effect(cluster):
    cluster.faults.add("internal", route="jobs/create", when="after", times=1)

    assert cluster.ask("POST", JOBS, indexed_job("a"))[0] == 500
    assert cluster.get("jobs", "a") is not None


def test_rate_limit_says_when_to_come_again(cluster):
    cluster.faults.add("rate_limited", retry_after=7)

    assert send(cluster.url, "GET", JOBS)[1]["retry-after"] == "7"


def test_requests_are_counted_by_route(cluster):
    submit(cluster)
    cluster.ask("GET", JOBS)
    cluster.ask("GET", f"{JOBS}/a")

    assert cluster.recorder.counts == {"jobs/create": 1, "jobs/list": 1, "jobs/get": 1}


def test_long_answers_are_zipped_on_request(cluster):
    for number in range(120):
        submit(cluster, f"job-{number}")
    headers = {"Authorization": f"Bearer {cluster.token}", "Accept-Encoding": "gzip"}

    _, told, content = send(cluster.url, "GET", JOBS, None, headers)

    assert told["content-encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(content))["items"]) == 120


def test_kueue_is_absent_unless_installed(cluster):
    assert cluster.ask("GET", "/apis/kueue.x-k8s.io")[0] == 404
    with Cluster(kueue={}) as other:
        assert other.ask("GET", "/apis/kueue.x-k8s.io")[0] == 200


@pytest.mark.parametrize("resource", ["jobs", "pods", "services", "configmaps", "nodes", "events"])
def test_objects_keep_to_the_published_schema(resource):
    """Of the version that is served; made by a Job that ran, one that failed, and their Service."""
    validate = pytest.importorskip("kubernetes_validate").validate
    with Cluster() as cluster:
        cluster.pods.plan(job="b", exit_code=1)
        for name in "ab":
            submit(cluster, name, 2, pod={"subdomain": name})
        spec = {"clusterIP": "None", "selector": {"job-name": "a"}, "ports": [{"port": 29500}]}
        cluster.ask("POST", SERVICES, {"metadata": {"name": "a"}, "spec": spec})
        cluster.put("configmaps", {"metadata": {"name": "c"}, "data": {"key": "value"}})
        cluster.clock.advance(20)
        found = cluster.list(resource)

    assert found
    for item in found:
        validate(item, "1.36", strict=False)


def test_lightkube_takes_it_for_a_cluster():
    lightkube = pytest.importorskip("lightkube")
    jobs = pytest.importorskip("lightkube.resources.batch_v1").Job
    errors = pytest.importorskip("lightkube.core.exceptions")
    made = pytest.importorskip("lightkube.codecs").from_dict
    with Cluster(namespaces=["ml"]) as cluster:
        client = lightkube.Client(config=lightkube.KubeConfig.from_file(str(cluster.kubeconfig)))
        for name in "abc":
            client.create(made(indexed_job(name, 2)))
        with pytest.raises(errors.ApiError) as refused:
            client.create(made(indexed_job("a", 2)))
        cluster.clock.advance(20)
        found = {job.metadata.name: job.status.succeeded for job in client.list(jobs, chunk_size=2)}
        client.delete(jobs, "a", cascade=pytest.importorskip("lightkube.types").CascadeType.FOREGROUND)
        cluster.clock.advance(5)
        client.close()

        assert refused.value.status.reason == "AlreadyExists"
        assert found == {"a": 2, "b": 2, "c": 2}
        assert cluster.get("jobs", "a") is None
