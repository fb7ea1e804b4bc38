"""Sweeps on a fake Kubernetes cluster that really runs its commands, as a user starts them."""

import json
from importlib.util import find_spec

import pytest

from airflows import api
from airflows.backends.registry import open_backend
from airflows.errors import SpecError
from airflows.testing.cluster import Cluster

RESUMES = """
import os, pathlib, sys
kept = pathlib.Path(os.environ["AIRFLOWS_CHECKPOINT_DIR"])
text = open(os.environ["HYPERPARAMETERS_PATH"]).read()
if "lr: 0.2" in text and not os.environ["AIRFLOWS_RESUME_FROM"]:
    (kept / "checkpoint-4").mkdir()
    (kept / "checkpoint-4" / "trainer_state.json").write_text("{}")
    sys.exit("ValueError: out of luck")
print(text.strip(), "from", os.path.basename(os.environ["AIRFLOWS_RESUME_FROM"]) or "the start")
"""
TRAINS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.full((8, 4), dist.get_rank() + 1.0)).pow(2).mean().backward()
    optimizer.step()
together = torch.ones(1)
dist.all_reduce(together)
print("of", int(together.item()), "weights", round(model.module.weight.sum().item(), 4), flush=True)
dist.destroy_process_group()
"""
DDP = (
    "python -m torch.distributed.run --nnodes=$NUM_NODES --node_rank=$NODE_RANK --nproc_per_node=$LOCAL_WORLD_SIZE"
    " --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT $CODE_SOURCE_PATH/train.py"
)


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    with Cluster(namespaces=["ml"], execute=True, clock_scale=1) as made:
        made.put("persistentvolumeclaims", {"metadata": {"name": "data"}})
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
        monkeypatch.setenv("AIRFLOWS_HOME", str(tmp_path / "home"))
        yield made


def sweep(directory, cluster, program, *, nodes=1, command="python $CODE_SOURCE_PATH/train.py", **tree):
    """Write the files of a sweep and read them."""
    (directory / "src").mkdir()
    (directory / "src" / "train.py").write_text(program)
    base = {
        "experiment_name": "kube",
        "command": command,
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": nodes},
        "code_source": {"root_path": "src"},
        "parameters": {"lr": 0.1},
    }
    pvc = {"claim": "data", "mount": "/mnt/ml", "local": str(cluster.claim("data"))}
    backend = {"type": "kubernetes", "image": "python:3.11", "pvc": pvc, "code": "config_map"}
    whole = {"name": "kube", "base": "train.yaml", "tracking": {"uri": "none"}, "backend": backend, **tree}
    # JSON is YAML.
    (directory / "train.yaml").write_text(json.dumps(base))
    (directory / "sweep.yaml").write_text(json.dumps(whole))
    return api.load_sweep(directory / "sweep.yaml")


def test_a_sweep_runs_retries_and_resumes_from_its_volume(tmp_path, cluster):
    loaded = sweep(tmp_path, cluster, RESUMES, space={"parameters.lr": [0.1, 0.2]}, retry={"wait": "1s"})

    result = api.run(loaded)

    assert result.state == "succeeded"
    jobs = [job["metadata"]["name"].split("-", 2)[2] for job in cluster.list("jobs")]
    assert sorted(jobs) == ["0000-a0", "0001-a0", "0001-a1"]
    assert [trial.attempts for trial in result.trials] == [1, 2]
    checkpoints = cluster.claim("data") / "checkpoints" / result.sweep / "1" / "checkpoint-4"
    assert checkpoints.is_dir()


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_two_nodes_train_together(tmp_path, cluster):
    loaded = sweep(
        tmp_path, cluster, TRAINS, nodes=2, command=DDP, space={"parameters.lr": [0.1]}, retry={"max": 0}
    )

    result = api.run(loaded)

    backend = open_backend(loaded.loaded.spec.backend, tmp_path / "home")
    (handle,) = backend.find([job["metadata"]["name"] for job in cluster.list("jobs")]).values()
    lines = [
        [x for x in backend.logs(handle, node=node, follow=False) if x.startswith("of ")] for node in range(2)
    ]
    assert result.state == "succeeded", lines
    assert lines[0] == lines[1] != []
    assert lines[0][0].startswith("of 2 weights ")


def test_a_store_that_pods_cannot_reach_is_refused_before_anything_is_made(tmp_path, cluster):
    store = {"uri": f"sqlite:///{tmp_path}/mlflow.db"}
    loaded = sweep(tmp_path, cluster, RESUMES, space={"parameters.lr": [0.1]}, tracking=store)

    with pytest.raises(SpecError, match="cannot log to the embedded MLflow store") as caught:
        api.run(loaded)
    assert caught.value.field == "tracking.uri"
    assert cluster.list("jobs") == []


def test_credentials_that_pods_would_not_get_are_refused_before_anything_is_made(
    tmp_path, cluster, monkeypatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "s3cret")
    store = {"uri": "http://127.0.0.1:1"}
    loaded = sweep(tmp_path, cluster, RESUMES, space={"parameters.lr": [0.1]}, tracking=store)

    with pytest.raises(SpecError, match="would not get MLflow's credentials") as caught:
        api.run(loaded)
    assert "backend.tracking_secret" in caught.value.hint
    assert "s3cret" not in str(caught.value)
    assert cluster.list("jobs") == []


def test_checkpoints_go_where_the_volume_is(tmp_path, cluster):
    space = {"parameters.lr": [0.1]}
    loaded = sweep(tmp_path, cluster, RESUMES, space=space, checkpoint={"dir": "/data/elsewhere"})

    with pytest.raises(SpecError, match="Name one below /mnt/ml"):
        api.run(loaded)
    assert cluster.list("jobs") == []
