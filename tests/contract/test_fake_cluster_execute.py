"""Containers of the fake cluster that really run, and the cluster as a program."""

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from airflows.testing.cluster import Cluster, indexed_job
from airflows.testing.cluster.samples import send
from airflows.testing.waiting import until

JOBS = "/apis/batch/v1/namespaces/default/jobs"
SERVICES = "/api/v1/namespaces/default/services"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@pytest.fixture
def cluster():
    with Cluster(execute=True, clock_scale=20) as cluster:
        yield cluster


def bash(script, **main):
    return {"main": {"command": ["bash", "-c", script], **main}}


def submit(cluster, name, nodes=1, **fields):
    status, answer = cluster.ask("POST", JOBS, indexed_job(name, nodes, **fields))
    assert status == 201, answer
    return answer


def end_of(cluster, job):
    """Return the type of the Job's last condition, once it has ended."""

    def ended():
        found = cluster.get("jobs", job)["status"].get("conditions", ())
        return next((known["type"] for known in found if known["type"] in ("Complete", "Failed")), "")

    return cluster.wait_for(ended, f"the end of {job}")


def logs_of(cluster, job):
    headers = {"Authorization": f"Bearer {cluster.token}"}
    return [
        send(cluster.url, "GET", f"/api/v1/namespaces/default/pods/{name}/log", None, headers)[2].decode()
        for name in (pod["metadata"]["name"] for pod in cluster.pods.list(job))
    ]


def ends_of(cluster, job, field="containerStatuses"):
    return [pod["status"][field][0]["state"].get("terminated") for pod in cluster.pods.list(job)]


def running(cluster, job):
    """Wait until the main container of a Job has written a line."""
    cluster.wait_for(lambda: any(logs_of_running(cluster, job)), f"the first line of {job}")


def logs_of_running(cluster, job):
    pods = cluster.pods.list(job)
    return logs_of(cluster, job) if pods and pods[0]["status"]["phase"] == "Running" else []


def test_container_gets_its_variables(cluster):
    cluster.put("secrets", {"metadata": {"name": "hf"}, "stringData": {"token": "s3cret$(HOME)"}})
    env = [
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        {"name": "BOTH", "value": "$(RANK)/$$(RANK)/$(NOBODY)"},
    ]
    submit(cluster, "a", pod=bash('echo "$RANK $JOB_COMPLETION_INDEX $TOKEN $BOTH"; echo "$POD"', env=env))

    assert end_of(cluster, "a") == "Complete"
    (pod,) = cluster.pods.list("a")
    name = pod["metadata"]["name"]
    assert logs_of(cluster, "a") == [f"0 0 s3cret$(HOME) 0/$(RANK)/$(NOBODY)\n{name}\n"]


def test_volumes_are_directories_of_this_machine(cluster):
    packed = base64.b64encode(b"from a map\n").decode()
    cluster.put("configmaps", {"metadata": {"name": "code"}, "binaryData": {"part": packed}})
    cluster.put("persistentvolumeclaims", {"metadata": {"name": "work"}})
    volumes = [
        {"name": "code", "configMap": {"name": "code"}},
        {"name": "work", "persistentVolumeClaim": {"claimName": "work"}},
    ]
    mounts = [
        {"name": "code", "mountPath": "/no/such/code/0"},
        {"name": "work", "mountPath": "/no/such/work", "subPath": "below"},
    ]
    env = [{"name": "CODE", "value": "/no/such/code"}, {"name": "OUT", "value": "/no/such/work/out"}]
    script = 'cat "$CODE"/*/part | tee "$OUT"; test -e /no/such/work/out; echo kept > /dev/termination-log'
    pod = {"volumes": volumes, **bash(script, env=env, volumeMounts=mounts)}
    submit(cluster, "a", pod=pod)

    assert end_of(cluster, "a") == "Complete"
    assert (cluster.claim("work") / "below" / "out").read_text() == "from a map\n"
    assert ends_of(cluster, "a")[0]["message"] == "kept\n"


def test_pods_find_each_other_by_the_names_of_a_headless_service(cluster):
    """The Service comes after the Job, whose uid it needs."""
    env = [{"name": "MASTER_ADDR", "value": "pair-0.pair"}, {"name": "MASTER_PORT", "value": "29500"}]
    listen = (
        "import os, socket, sys; s = socket.create_server(('', int(os.environ['MASTER_PORT'])));"
        " print(s.accept()[0].recv(9).decode())"
    )
    call = (
        "until python -c \"import os, socket; socket.create_connection((os.environ['MASTER_ADDR'],"
        " int(os.environ['MASTER_PORT']))).sendall(b'hello')\" 2>/dev/null; do :; done"
    )
    script = f'if ((JOB_COMPLETION_INDEX)); then {call}; else exec python -c "{listen}"; fi'
    made = submit(cluster, "pair", 2, pod={"subdomain": "pair", **bash(script, env=env)})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "pair", "uid": made["metadata"]["uid"]}
    spec = {"clusterIP": "None", "selector": {"job-name": "pair"}, "ports": [{"port": 29500}]}
    service = {"metadata": {"name": "pair", "ownerReferences": [owner]}, "spec": spec}

    assert cluster.ask("POST", SERVICES, service)[0] == 201

    assert end_of(cluster, "pair") == "Complete"
    assert logs_of(cluster, "pair")[0] == "hello\n"


def test_exit_code_and_first_failure_are_told(cluster):
    submit(cluster, "a", 2, pod=bash("((JOB_COMPLETION_INDEX)) && exit 7; exec sleep 1000"))

    assert end_of(cluster, "a") == "Failed"
    assert [end["exitCode"] for end in ends_of(cluster, "a")] == [7]


def test_init_container_that_fails_ends_the_pod(cluster):
    init = [{"name": "code", "image": "img", "command": ["bash", "-c", "exit 65"]}]
    submit(cluster, "a", pod={"initContainers": init, **bash("echo never")})

    assert end_of(cluster, "a") == "Failed"
    assert ends_of(cluster, "a", "initContainerStatuses")[0]["exitCode"] == 65


def test_command_that_is_not_there_is_a_start_error(cluster):
    submit(cluster, "a", pod={"main": {"command": ["/no/such/binary"]}})

    assert end_of(cluster, "a") == "Failed"
    end = ends_of(cluster, "a")[0]
    assert (end["exitCode"], end["reason"]) == (128, "StartError")
    assert "/no/such/binary" in end["message"]


def test_deletion_lets_the_command_end_itself(cluster):
    cluster.put("persistentvolumeclaims", {"metadata": {"name": "work"}})
    pod = {
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}],
        **bash(
            "trap 'echo saved > /work-of-pods/saved; exit 0' TERM; echo up; sleep 1000 & wait",
            volumeMounts=[{"name": "work", "mountPath": "/work-of-pods"}],
        ),
    }
    submit(cluster, "a", pod=pod)
    running(cluster, "a")

    cluster.ask("DELETE", f"{JOBS}/a?propagationPolicy=Foreground")
    cluster.wait_for(lambda: cluster.get("jobs", "a") is None, "the Job to go")

    assert (cluster.claim("work") / "saved").read_text() == "saved\n"


def test_what_ignores_the_signal_is_killed_after_the_grace_with_all_it_started(cluster):
    script = "trap '' TERM; setsid sleep 1000 & echo $!; wait; sleep 1000"
    submit(cluster, "a", pod={"terminationGracePeriodSeconds": 5, **bash(script)})
    running(cluster, "a")
    child = int(logs_of(cluster, "a")[0])

    cluster.ask("DELETE", f"{JOBS}/a?propagationPolicy=Foreground")
    cluster.wait_for(lambda: cluster.get("jobs", "a") is None, "the Job to go")

    cluster.wait_for(lambda: not is_alive(child), "the process that left the session to go")


def test_leaving_ends_all_processes():
    with Cluster(execute=True, clock_scale=20) as cluster:
        submit(cluster, "a", pod=bash("echo $BASHPID; exec sleep 1000"))
        running(cluster, "a")
        pid = int(logs_of(cluster, "a")[0])

    until(lambda: not is_alive(pid), "the process to go")


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path("/proc", str(pid), "status").read_text()


def test_program_serves_until_interrupted(tmp_path):
    command = [sys.executable, "-m", "airflows.testing.cluster", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        path = Path(program.stdout.readline().strip())
        config = yaml.safe_load(path.read_text())
        url = config["clusters"][0]["cluster"]["server"]
        status = send(url, "GET", "/version")[0]
        program.send_signal(signal.SIGINT)
        _, told = program.communicate(timeout=30)

    assert (status, program.returncode) == (200, 0)
    assert f"export KUBECONFIG={path}" in told


def test_program_refuses_a_bad_script(tmp_path):
    script = tmp_path / "bad.yaml"
    script.write_text("nodez: {}\n")
    command = [sys.executable, "-m", "airflows.testing.cluster", "--script", str(script)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 2
    assert "nodez: Extra inputs are not permitted" in ended.stderr
