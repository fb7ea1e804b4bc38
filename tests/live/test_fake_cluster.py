"""The fake cluster beside a probe that a real one passes, and with a training of two nodes."""

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflows.testing.cluster import Cluster, indexed_job
from airflows.testing.cluster.samples import send

pytestmark = pytest.mark.live

PROBE = Path(__file__).parents[1] / "data" / "kubernetes" / "probe.py"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
SERVICES = "/api/v1/namespaces/default/services"

TRAINING = """
    import os
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=int(os.environ["NODE_RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(dist.get_rank())
    weights = torch.zeros(3, requires_grad=True)
    for step in range(30):
        points = torch.randn(16, 3)
        loss = ((points @ weights - points.sum(1)) ** 2).mean()
        loss.backward()
        dist.all_reduce(weights.grad)
        with torch.no_grad():
            weights -= 0.1 * weights.grad / dist.get_world_size()
            weights.grad.zero_()
    print([round(value, 3) for value in weights.tolist()], loss.item() < 0.01)
    dist.destroy_process_group()
"""


def test_probe_takes_it_for_a_real_server():
    with Cluster(clock_scale=1.0) as cluster:
        command = [sys.executable, str(PROBE), "--url", cluster.url, "--token", cluster.token]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    differences = [line for line in ended.stdout.splitlines() if line.startswith("DIFF")]
    assert differences == []
    assert ended.stdout.splitlines()[-1] == "43 of 43 as a real API server"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_training_of_two_nodes_agrees_on_its_weights():
    rank = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    env = [
        {"name": "NODE_RANK", "valueFrom": rank},
        {"name": "WORLD_SIZE", "value": "2"},
        {"name": "MASTER_ADDR", "value": "pair-0.pair"},
        {"name": "MASTER_PORT", "value": "29500"},
    ]
    main = {"command": ["python", "-c", textwrap.dedent(TRAINING)], "env": env}
    spec = {"clusterIP": "None", "selector": {"job-name": "pair"}, "ports": [{"port": 29500}]}
    with Cluster(execute=True, clock_scale=10) as cluster:
        cluster.ask("POST", JOBS, indexed_job("pair", 2, pod={"subdomain": "pair", "main": main}))
        cluster.ask("POST", SERVICES, {"metadata": {"name": "pair"}, "spec": spec})

        def ended():
            found = cluster.get("jobs", "pair")["status"].get("conditions", ())
            return next((known["type"] for known in found if known["type"] in ("Complete", "Failed")), "")

        assert cluster.wait_for(ended, "the training", patience_s=240) == "Complete", _logs(cluster)
        (first, second) = _logs(cluster)

    assert first == second
    assert first.endswith("True\n")


def _logs(cluster):
    headers = {"Authorization": f"Bearer {cluster.token}"}
    names = [pod["metadata"]["name"] for pod in cluster.pods.list("pair")]
    paths = [f"/api/v1/namespaces/default/pods/{name}/log" for name in names]
    return [send(cluster.url, "GET", path, None, headers)[2].decode() for path in paths]
