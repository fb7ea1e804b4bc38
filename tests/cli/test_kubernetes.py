"""Kubernetes from the command line: what would be submitted, and Jobs that nobody here has submitted."""

import shutil

import pytest
import yaml

from airflows.testing.cluster import Cluster


@pytest.fixture
def cluster(cli):
    with Cluster(namespaces=["ml"], execute=True, clock_scale=1) as made:
        cli.env["KUBECONFIG"] = str(made.kubeconfig)
        yield made


def kubernetes_sweep(cli):
    backend = {"type": "kubernetes", "image": "python:3.11"}
    return cli.sweep_file("echo lr", space={"parameters.lr": [0.1]}, backend=backend)


def test_a_preview_shows_the_job_and_writes_nothing(cli, cluster):
    file = kubernetes_sweep(cli)
    done = cli("sweep", file, "--dry-run")

    assert done.status == 0, done.err
    job = yaml.safe_load(done.out.partition("--- job.yaml\n")[2])
    assert job["kind"] == "Job"
    assert job["metadata"]["name"].endswith("-0000-a0")
    (main,) = job["spec"]["template"]["spec"]["containers"]
    assert main["image"] == "python:3.11"
    assert "echo lr" in main["args"]
    assert cluster.list("jobs") == []
    assert not cli.home.exists()


def test_a_job_that_no_ledger_knows_is_told_of_by_its_name(cli, cluster):
    file = kubernetes_sweep(cli)
    assert cli("sweep", file, "--yes").status == 0
    (job,) = cluster.list("jobs")
    name = f"kubernetes:{job['metadata']['name']}"
    shutil.rmtree(cli.home)

    document = cli("get", name, "-o", "json").document
    assert document["status"] == "COMPLETE"
    assert document["trial"] == "0"
    assert document["exit_code"] == 0
    assert document["image"] == "python:3.11"
    assert "exit 0" in document["pods"][0]
    assert cli("logs", name).out.splitlines()[-1] == "lr"
    assert cli("cancel", name, "--yes").status == 0


def test_a_job_that_is_not_there_is_said_so(cli, cluster):
    for words in (("get", "kubernetes:no-such"), ("logs", "kubernetes:no-such")):
        done = cli(*words)
        assert done.status == 2
        assert "namespace ml has no Job no-such" in done.error
    assert cluster.list("jobs") == []
