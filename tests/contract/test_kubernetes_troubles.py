"""What is wrong with a cluster, or with what is asked of it, is said in words; nothing of it is a crash."""

import json
import random
from dataclasses import replace

import pytest

from airflows.backends.base import Phase
from airflows.backends.kubernetes import KubernetesBackend, KubernetesSettings, parcels
from airflows.backends.kubernetes.client import Api, load_lightkube
from airflows.backends.kubernetes.parcels import archive
from airflows.errors import (
    BackendUnavailableError,
    SpecError,
    SubmitAmbiguousError,
    SubmitError,
    SubmitRejectedError,
    SubmitUnsentError,
)
from airflows.failures import classify
from airflows.testing.cluster import Cluster
from airflows.testing.jobs import MakeJob
from airflows.train import decode
from airflows.trial import Reason

TRAIN = {
    "experiment_name": "trouble",
    "command": "true",
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
}


class Scene:
    """A cluster that stands still until it is told, and the backend on it."""

    def __init__(self, cluster, tmp_path, **options):
        given = {"image": "python:3.11", "patience": 1, **options}
        settings = KubernetesSettings(kubeconfig=cluster.kubeconfig, **given)
        self.cluster = cluster
        self.reopen = lambda: KubernetesBackend(
            settings,
            tmp_path / "home",
            clock=cluster.clock.now,
            pause=lambda s: cluster.clock.advance(max(s, 0.05)),
        )
        self.backend = self.reopen()
        self.make_job = MakeJob(self.backend)

    def start(self, job=None):
        (answer,) = self.backend.submit([job or self.make_job("true")])
        assert not isinstance(answer, SubmitError), answer
        return answer

    def refused(self, job=None):
        (answer,) = self.backend.submit([job or self.make_job("true")])
        assert isinstance(answer, SubmitError)
        return answer

    def look(self, handle, *, after=0.0):
        self.cluster.clock.advance(after)
        return self.backend.poll([handle])[handle]

    def check(self, **changes):
        return self.backend.check(decode({**TRAIN, **changes}))


def job_of(handle):
    return handle.partition("@")[0]


@pytest.fixture
def open_scene(tmp_path):
    opened = []

    def open_one(cluster_fields=None, **options):
        cluster = Cluster(**{"namespaces": ["ml"], **(cluster_fields or {})})
        opened.append(cluster)
        cluster.__enter__()
        return Scene(cluster, tmp_path, **options)

    yield open_one
    for cluster in opened:
        cluster.__exit__(None, None, None)


# Reaching it


def test_a_cluster_that_can_be_used_says_where_it_is(open_scene):
    scene = open_scene()
    reach = scene.backend.reach()

    assert reach.available
    assert "Kubernetes 1.36 at http://127.0.0.1:" in reach.notes[0]
    assert "namespace ml" in reach.notes[0]
    assert "checkpoints are lost" in reach.notes[1]


def test_no_cluster_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    reach = KubernetesBackend(KubernetesSettings(), tmp_path).reach()

    assert not reach.available
    assert f"there is no {tmp_path}/.kube/config" in reach.why_not


def test_a_server_that_is_not_there_is_said(open_scene):
    scene = open_scene()
    text = scene.cluster.kubeconfig.read_text().replace(scene.cluster.url, "http://127.0.0.1:1")
    scene.cluster.kubeconfig.write_text(text)

    reach = scene.backend.reach()

    assert not reach.available
    assert "http://127.0.0.1:1 did not answer" in reach.why_not


def test_an_old_cluster_is_refused(open_scene):
    scene = open_scene({"version": "1.23.4"})

    assert "is Kubernetes 1.23; Indexed Jobs need 1.24" in scene.backend.reach().why_not


@pytest.mark.parametrize("right", [("create", "jobs.batch"), ("get", "pods/log"), ("list", "pods")])
def test_a_right_that_is_missing_is_named(open_scene, right):
    scene = open_scene()
    scene.cluster.access.forbid(*right)

    reach = scene.backend.reach()

    assert not reach.available
    assert f"you may not: {right[0]} {right[1].removesuffix('.batch')}" in reach.why_not
    assert "namespace ml" in reach.why_not


def test_a_namespace_that_is_not_there_is_said(open_scene):
    scene = open_scene(namespace="nope")

    assert "there is no namespace nope" in scene.backend.reach().why_not


def test_an_expired_token_is_said_and_a_new_one_is_taken(open_scene):
    scene = open_scene()
    handle = scene.start()
    scene.cluster.renew("another")

    assert scene.look(handle, after=60).phase is Phase.ENDED

    scene.cluster.access.expire()
    reach = scene.backend.reach()
    assert not reach.available
    assert "does not accept the credentials" in reach.why_not
    assert "may have expired" in reach.why_not
    with pytest.raises(BackendUnavailableError, match="may have expired"):
        scene.backend.find([job_of(handle)])
    assert isinstance(scene.refused(), SubmitUnsentError)


def hold(cluster, name, finalizers=("example.com/hold",)):
    """Keep a Job, should it be deleted."""
    body = {"metadata": {"finalizers": list(finalizers)}}
    path = f"/apis/batch/v1/namespaces/ml/jobs/{name}"
    status, _ = cluster.ask("PATCH", path, body, {"Content-Type": "application/merge-patch+json"})
    assert status in {200, 404}


def release(cluster, name):
    hold(cluster, name, ())


def lead_to(kubeconfig, cluster, namespace="ml", token=None):
    """Let the current context of a kubeconfig be another one, which leads to a cluster."""
    config = json.loads(kubeconfig.read_text())
    config["clusters"].append({"name": "b", "cluster": {"server": cluster.url}})
    config["users"].append({"name": "b", "user": {"token": token or cluster.token}})
    context = {"cluster": "b", "user": "b", "namespace": namespace}
    config["contexts"].append({"name": "b", "context": context})
    kubeconfig.write_text(json.dumps({**config, "current-context": "b"}))


@pytest.mark.parametrize("namespaces", [["ml"], ["ml", "kube-system"]], ids=["by address", "by its uid"])
def test_another_cluster_is_not_asked_for_what_runs_in_this_one(open_scene, namespaces):
    scene = open_scene({"namespaces": namespaces})
    scene.cluster.pods.plan(run_s=None)
    other = open_scene({"namespaces": namespaces, "seed": 7}).cluster
    job = scene.make_job("true")
    handle = scene.start(job)
    lead_to(scene.cluster.kubeconfig, other)
    backend = scene.reopen()

    for call in (backend.poll, backend.cancel):
        with pytest.raises(
            BackendUnavailableError, match=f"attempt {job.token} is in namespace ml of another"
        ):
            call([handle])
    with pytest.raises(BackendUnavailableError, match="another cluster"):
        backend.find([job.token])
    (answer,) = backend.submit([job])
    assert isinstance(answer, SubmitUnsentError)
    assert other.list("jobs") == []
    assert len(scene.cluster.list("jobs")) == 1


def test_another_namespace_is_not_asked_for_what_runs_in_this_one(open_scene):
    scene = open_scene({"namespaces": ["ml", "dev"]})
    handle = scene.start()
    lead_to(scene.cluster.kubeconfig, scene.cluster, "dev")

    with pytest.raises(
        BackendUnavailableError, match="is in namespace ml, and context b leads to namespace dev"
    ):
        scene.reopen().poll([handle])


def test_a_new_address_of_the_same_cluster_is_the_same_place(open_scene):
    scene = open_scene({"namespaces": ["ml", "kube-system"]})
    handle = scene.start()
    text = scene.cluster.kubeconfig.read_text().replace("127.0.0.1", "localhost")
    scene.cluster.kubeconfig.write_text(text)
    scene.cluster.clock.advance(60)

    assert scene.reopen().poll([handle])[handle].exit_code == 0


def test_a_driver_stays_with_its_context_when_it_must_log_in_again(open_scene):
    scene, other = open_scene(), open_scene()
    handle = scene.start()
    scene.cluster.renew("another")
    lead_to(scene.cluster.kubeconfig, other.cluster)

    assert scene.look(handle, after=60).exit_code == 0


def test_a_context_that_leads_elsewhere_by_now_is_not_followed(open_scene):
    scene, other = open_scene(), open_scene()
    handle = scene.start()
    scene.cluster.renew("another")
    text = scene.cluster.kubeconfig.read_text().replace(scene.cluster.url, other.cluster.url)
    scene.cluster.kubeconfig.write_text(text)

    with pytest.raises(BackendUnavailableError, match=f"led to namespace ml of {scene.cluster.url}, and now"):
        scene.look(handle, after=60)


def test_logging_in_again_and_again_leaves_no_connections(open_scene, monkeypatch):
    scene = open_scene()
    handle = scene.start()
    made = []
    adapter = load_lightkube()
    original = adapter.Client
    monkeypatch.setattr(adapter, "Client", lambda *given: made.append(original(*given)) or made[-1])
    for number in range(6):
        scene.cluster.renew(f"token-{number}")
        scene.look(handle, after=60)
        scene.backend.find([job_of(handle)])

    assert len(made) == 6
    assert [client.is_closed for client in made] == [True] * 4 + [False] * 2


def with_program(cluster, script):
    """Let a kubeconfig get its token from a program, as those of cloud providers do."""
    program = cluster.directory / "login"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    config = json.loads(cluster.kubeconfig.read_text())
    asked = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}
    config["users"][0]["user"] = {"exec": asked}
    cluster.kubeconfig.write_text(json.dumps(config))


def test_a_program_may_give_the_token(open_scene):
    scene = open_scene()
    with_program(scene.cluster, f"""echo '{{"status": {{"token": "{scene.cluster.token}"}}}}'""")

    assert scene.backend.reach().available


@pytest.mark.parametrize("script", ["echo s3cret; exit 3", "echo s3cret >&2; exit 3", "echo s3cret"])
def test_a_program_that_gives_no_token_is_said_and_not_quoted(open_scene, script):
    scene = open_scene()
    with_program(scene.cluster, script)

    reach = scene.backend.reach()

    assert not reach.available
    assert "there are no credentials for http://127.0.0.1:" in reach.why_not
    assert "s3cret" not in reach.why_not


# Submitting


def test_a_right_that_is_missing_at_submission_rejects_the_trial_with_the_verb(open_scene):
    scene = open_scene()
    scene.cluster.access.forbid("create", "jobs.batch")

    answer = scene.refused()

    assert isinstance(answer, SubmitRejectedError)
    assert "needs the verb create on jobs of batch in namespace ml" in str(answer)


def test_without_the_right_to_services_no_job_of_several_nodes_is_left(open_scene):
    scene = open_scene()
    scene.cluster.access.forbid("create", "services")

    answer = scene.refused(scene.make_job("true", nodes=2))
    scene.cluster.clock.advance(30)

    assert "the verb create on services" in str(answer)
    assert scene.cluster.list("jobs") == []
    with pytest.raises(SpecError, match="create services"):
        scene.check(compute={"accelerator_type": "GPU_1xA10", "num_accelerators": 2})


def test_a_job_whose_driver_died_before_its_service_gets_it_when_it_is_found(open_scene):
    scene = open_scene()
    scene.cluster.pods.plan(run_s=None)
    scene.cluster.faults.add("internal", route="services/create", times=10)
    job = scene.make_job("true", nodes=2)
    (answer,) = scene.backend.submit([job])
    assert isinstance(answer, SubmitAmbiguousError)
    scene.cluster.faults.clear()

    found = [scene.reopen().find([job.token]) for _ in range(2)]

    assert [list(one) for one in found] == [[job.token]] * 2
    (service,) = scene.cluster.list("services")
    (made,) = scene.cluster.list("jobs")
    assert service["metadata"]["name"] == str(job.token)
    assert service["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


def test_a_quota_of_jobs_makes_a_trial_wait(open_scene):
    scene = open_scene()
    scene.cluster.quota("few", {"count/jobs.batch": 1})
    scene.start()

    answer = scene.refused()

    assert isinstance(answer, SubmitUnsentError)
    assert "quota of namespace ml is used up" in str(answer)


def test_a_quota_of_pods_is_explained_while_the_job_waits(open_scene):
    scene = open_scene()
    scene.cluster.quota("few", pods=0)
    handle = scene.start()

    scene.look(handle, after=5)
    seen = scene.look(handle, after=40)

    assert seen.phase is Phase.QUEUED
    assert "pods cannot be made, a quota is used up" in seen.detail


def test_an_admission_webhook_that_says_no_rejects_in_its_words(open_scene):
    scene = open_scene()
    scene.cluster.faults.add("webhook_denied", route="jobs/create")

    assert "policy.example.com" in str(scene.refused())
    with pytest.raises(SpecError, match=r"policy\.example\.com"):
        scene.check()


def test_a_job_that_the_cluster_finds_wrong_is_refused_before_anything_is_made(open_scene):
    scene = open_scene(pod_template={"spec": {"nodeSelektor": {"disk": "ssd"}}})

    with pytest.raises(SpecError, match="nodeSelektor"):
        scene.check()
    assert scene.cluster.list("jobs") == []


def test_no_image_is_refused(open_scene):
    scene = open_scene(image=None)

    with pytest.raises(SpecError, match="no image is named"):
        scene.check()
    assert scene.check(environment={"docker_image": {"url": "registry/team:1"}})
    assert "no image is named" in str(scene.refused())


def test_credentials_of_mlflow_are_never_put_into_a_job(open_scene):
    scene = open_scene()
    job = replace(scene.make_job("true"), secret_env={"MLFLOW_TRACKING_PASSWORD": "s3cret"})

    assert "MLFLOW_TRACKING_PASSWORD must come from a Secret" in str(scene.refused(job))

    other = open_scene(tracking_secret="mlflow")
    handle = other.start(job)
    (main,) = other.cluster.get("jobs", job_of(handle))["spec"]["template"]["spec"]["containers"]
    assert "s3cret" not in str(other.cluster.list("jobs"))
    assert {"name": "mlflow", "key": "MLFLOW_TRACKING_PASSWORD"} in [
        one["valueFrom"]["secretKeyRef"] for one in main["env"] if "secretKeyRef" in one.get("valueFrom", {})
    ]


def test_code_that_is_too_large_is_packed_once(open_scene, tmp_path, monkeypatch):
    code = tmp_path / "snapshots" / "0f0f" / "src"
    code.mkdir(parents=True)
    (code / "data.bin").write_bytes(random.Random(0).randbytes(5_000_000))
    scene = open_scene()
    packed = []
    monkeypatch.setattr(parcels, "archive", lambda path: packed.append(path) or archive(path))

    for _ in range(2):
        answer = scene.refused(replace(scene.make_job("true"), code=code))
        assert isinstance(answer, SubmitRejectedError)
        assert "more than 4.5 MB" in str(answer)
    assert packed == [code]


def test_another_job_of_the_same_name_is_not_taken_for_ours(open_scene):
    scene = open_scene()
    job = scene.make_job("true")
    scene.start(job)

    assert "another Job called" in str(scene.refused(replace(job, files={"command.sh": b"false"})))


def test_a_job_that_is_being_deleted_is_waited_for(open_scene):
    scene = open_scene()
    scene.cluster.pods.plan(run_s=None, on_term_s=20)
    job = scene.make_job("true")
    handle = scene.start(job)
    scene.look(handle, after=10)
    scene.backend.cancel([handle])

    answer = scene.refused(job)
    scene.cluster.clock.advance(60)

    # Its pods may run still, so nobody may take it elsewhere.
    assert isinstance(answer, SubmitAmbiguousError)
    assert "still being deleted" in str(answer)
    assert scene.start(job) == handle


@pytest.mark.parametrize("kind", ["dropped_reply", "internal", "gateway_timeout", "bad_gateway"])
def test_a_lost_answer_makes_one_job(open_scene, kind):
    scene = open_scene()
    scene.cluster.faults.add(kind, route="jobs/create", when="after", times=1)
    job = scene.make_job("true")

    assert scene.start(job) == scene.start(job)
    assert len(scene.cluster.list("jobs")) == 1


def test_a_job_that_is_not_there_yet_is_not_given_up_while_its_request_may_be_carried_out(open_scene):
    assert open_scene().backend.capabilities.visibility_lag_s >= 60


# Waiting


def test_an_image_that_does_not_exist_is_shown_and_ends_the_attempt_in_time(open_scene):
    scene = open_scene({"missing_images": ["python:*"]})
    handle = scene.start()

    waiting = scene.look(handle, after=30)
    assert waiting.phase is Phase.QUEUED
    assert "ImagePull" in waiting.detail

    scene.look(handle, after=700)
    seen = scene.look(handle, after=120)
    verdict = classify(seen, [])
    assert verdict.reason is Reason.INVALID
    assert "ImagePull" in verdict.message
    assert scene.cluster.list("jobs") == []


@pytest.mark.parametrize("lost", ["nothing", "the delete"])
def test_why_an_attempt_was_ended_is_known_to_the_next_driver(open_scene, lost):
    scene = open_scene({"missing_images": ["python:*"]})
    handle = scene.start()
    scene.look(handle, after=30)
    if lost == "the delete":
        scene.cluster.faults.add("internal", route="jobs/delete", times=9)
        with pytest.raises(BackendUnavailableError):
            scene.look(handle, after=700)
        scene.cluster.faults.clear()
    else:
        # Somebody else keeps it from going at once.
        hold(scene.cluster, job_of(handle))
        scene.look(handle, after=700)

    backend = scene.reopen()
    assert backend.poll([handle])[handle].phase is Phase.UNKNOWN
    release(scene.cluster, job_of(handle))
    scene.cluster.clock.advance(120)
    verdict = classify(backend.poll([handle])[handle], [])

    assert verdict.reason is Reason.INVALID
    assert "ImagePull" in verdict.message


def test_without_the_right_to_annotate_an_attempt_is_ended_all_the_same(open_scene):
    scene = open_scene({"missing_images": ["python:*"]})
    scene.cluster.access.forbid("patch", "jobs.batch")
    handle = scene.start()
    scene.look(handle, after=30)
    scene.look(handle, after=700)

    assert classify(scene.look(handle, after=120), []).reason is Reason.INVALID


def test_a_secret_that_does_not_exist_is_shown(open_scene):
    scene = open_scene()
    handle = scene.start(replace(scene.make_job("true"), secrets={"TOKEN": "nlp/token"}))

    seen = scene.look(handle, after=30)

    assert seen.phase is Phase.QUEUED
    assert "CreateContainerConfigError" in seen.detail
    assert "nlp" in seen.detail


def test_a_pod_that_is_never_scheduled_waits_with_the_scheduler_s_words(open_scene):
    scene = open_scene({"nodes": {"node1": {"cpu": 4}}})
    handle = scene.start()

    seen = scene.look(handle, after=10_000)

    assert seen.phase is Phase.QUEUED
    assert "Insufficient nvidia.com/gpu" in seen.detail


def test_half_a_group_says_who_is_missing(open_scene):
    scene = open_scene({"nodes": {"node1": {"cpu": 4, "nvidia.com/gpu": 1}}})
    handle = scene.start(scene.make_job("true", nodes=2))

    scene.cluster.pods.plan(run_s=None)
    seen = scene.look(handle, after=10)

    assert "1 of 2 nodes have started" in seen.detail
    assert "Insufficient nvidia.com/gpu" in seen.detail


# Kueue


def test_a_queue_without_kueue_is_refused(open_scene):
    scene = open_scene(queue="team-q")

    with pytest.raises(SpecError, match="Kueue is not installed") as caught:
        scene.check()
    assert caught.value.field == "backend.queue"


def kueue(**quota):
    return {"kueue": {"queues": {"team-q": "cq"}, "quotas": {"cq": quota}, "priorities": {"high": 100}}}


def test_a_queue_that_does_not_exist_is_refused_with_those_there_are(open_scene):
    scene = open_scene(kueue(), queue="other")

    with pytest.raises(SpecError, match="There are: team-q"):
        scene.check()


def test_a_queue_that_vanishes_is_said_of_the_trials_in_it(open_scene):
    scene = open_scene(kueue(cpu=0), queue="team-q", cpus=1, memory="1Gi")
    scene.cluster.kueue.remove_queue("team-q")
    handle = scene.start()

    seen = scene.look(handle, after=30)

    assert seen.phase is Phase.QUEUED
    assert "team-q is not set up" in seen.detail


def test_a_trial_that_a_queue_can_never_hold_says_so(open_scene):
    scene = open_scene(kueue(**{"nvidia.com/gpu": 1}), queue="team-q")
    handle = scene.start(scene.make_job("true", nodes=2))

    seen = scene.look(handle, after=30)

    assert "queue team-q can never hold it" in seen.detail


def test_a_full_queue_holds_trials_back_and_lets_them_go(open_scene):
    scene = open_scene(kueue(**{"nvidia.com/gpu": 1}), queue="team-q")
    scene.cluster.pods.plan(run_s=60)
    first, second = scene.start(), scene.start()

    running = scene.look(first, after=20)
    waiting = scene.look(second, after=0)
    assert running.phase is Phase.RUNNING
    assert waiting.phase is Phase.QUEUED
    assert "waits for room in queue team-q" in waiting.detail

    assert scene.look(second, after=70).phase is Phase.RUNNING
    assert scene.look(second, after=120).exit_code == 0


def test_a_trial_that_kueue_preempts_waits_and_goes_on(open_scene):
    scene = open_scene(kueue(**{"nvidia.com/gpu": 1}), queue="team-q")
    scene.cluster.pods.plan(run_s=100)
    handle = scene.start()
    assert scene.look(handle, after=20).phase is Phase.RUNNING

    scene.cluster.kueue.preempt(job_of(handle))
    phases = [scene.look(handle, after=5).phase for _ in range(60)]

    assert Phase.ENDED is phases[-1]
    assert scene.look(handle).exit_code == 0


# Ends


@pytest.mark.parametrize(
    ("happening", "reason"),
    [
        ("evict", Reason.PREEMPTED),
        ("preempt", Reason.PREEMPTED),
        ("pressure", Reason.PREEMPTED),
        ("delete", Reason.LOST),
    ],
)
def test_what_happens_to_a_pod_is_told_as_what_it_was(open_scene, happening, reason):
    scene = open_scene()
    scene.cluster.pods.plan(run_s=None)
    handle = scene.start(scene.make_job("true", nodes=2))
    assert scene.look(handle, after=10).phase is Phase.RUNNING

    getattr(scene.cluster.pods, happening)(job_of(handle), index=0)
    seen = scene.look(handle, after=200)

    assert classify(seen, []).reason is reason


def test_memory_that_ran_out_is_told(open_scene):
    scene = open_scene()
    scene.cluster.pods.plan(oom=True, run_s=5)

    assert classify(scene.look(scene.start(), after=60), []).reason is Reason.OUT_OF_MEMORY


def test_a_machine_that_is_gone_is_told(open_scene):
    scene = open_scene({"nodes": {"node1": {"nvidia.com/gpu": 8}, "node2": {}}})
    scene.cluster.pods.plan(run_s=None)
    handle = scene.start()
    assert scene.look(handle, after=10).phase is Phase.RUNNING

    scene.cluster.nodes.remove("node1")
    looks = [scene.look(handle, after=5) for _ in range(60)]

    assert looks[-1].phase is Phase.ENDED
    assert classify(looks[-1], []).reason in {Reason.NODE_FAILED, Reason.PREEMPTED}


def test_a_job_that_somebody_deleted_is_not_taken_for_a_success(open_scene):
    scene = open_scene()
    scene.cluster.pods.plan(run_s=None)
    handle = scene.start()
    scene.look(handle, after=10)
    path = f"/apis/batch/v1/namespaces/ml/jobs/{job_of(handle)}"
    scene.cluster.ask("DELETE", path, {"propagationPolicy": "Background"})

    seen = scene.look(handle, after=60)

    assert (seen.phase, seen.exit_code, seen.word) == (Phase.ENDED, None, "LOST")


# Asking


def test_expired_pages_of_a_list_are_asked_for_again(open_scene):
    scene = open_scene()
    handle = scene.start()
    scene.cluster.faults.add(route="jobs/list", status=410, reason="Expired", message="too old", times=2)

    assert scene.look(handle, after=60).exit_code == 0
    scene.cluster.faults.add(route="jobs/list", status=410, reason="Expired", message="too old")
    with pytest.raises(BackendUnavailableError, match="had expired"):
        scene.backend.find([job_of(handle)])


@pytest.mark.parametrize("kind", ["rate_limited", "internal", "unavailable", "bad_gateway", "dropped_reply"])
def test_a_busy_cluster_is_asked_again_and_silence_ends_nothing(open_scene, kind):
    scene = open_scene(patience=30)
    handle = scene.start()
    scene.cluster.clock.advance(60)
    scene.cluster.faults.add(kind, route="*", times=2)
    assert scene.look(handle).exit_code == 0

    other = scene.start()
    scene.cluster.faults.add(kind, route="*")
    with pytest.raises(BackendUnavailableError):
        scene.look(other, after=60)
    scene.cluster.faults.clear()
    assert scene.look(other).exit_code == 0


def test_hundreds_of_trials_are_two_lists_a_look(open_scene):
    scene = open_scene()
    scene.cluster.pods.plan(run_s=None)
    jobs = [scene.make_job("true") for _ in range(500)]
    handles = scene.backend.submit(jobs)
    assert set(map(type, handles)) == {str}
    scene.cluster.clock.advance(60)
    scene.cluster.recorder.counts.clear()

    seen = scene.backend.poll(handles)
    again = scene.backend.poll(handles)

    assert {one.phase for one in seen.values()} == {Phase.RUNNING}
    assert again == seen
    counts = {route: times for route, times in scene.cluster.recorder.counts.items() if route != "pods/log"}
    assert counts == {"jobs/list": 1, "pods/list": 1}


@pytest.mark.parametrize("asks", ["poll", "find"])
def test_what_has_ended_is_not_read_again_with_what_is_open(open_scene, monkeypatch, asks):
    scene = open_scene()
    scene.backend.submit([scene.make_job("true") for _ in range(30)])
    scene.cluster.clock.advance(60)
    scene.cluster.pods.plan(run_s=None)
    jobs = [scene.make_job("true") for _ in range(2)]
    handles = scene.backend.submit(jobs)
    scene.cluster.clock.advance(60)
    read = []
    items = Api.items

    def counted(api, path, /, **query):
        found = items(api, path, **query)
        read.extend((item["metadata"].get("labels") or {}).get("airflows/trial") for item in found)
        return found

    monkeypatch.setattr(Api, "items", counted)

    if asks == "poll":
        seen = scene.backend.poll(handles)
        assert [one.phase for one in seen.values()] == [Phase.RUNNING] * 2
    else:
        assert list(scene.backend.find([job.token for job in jobs])) == [job.token for job in jobs]

    assert set(read) == {str(job.number) for job in jobs}
    assert len(read) == {"poll": 4, "find": 2}[asks]
