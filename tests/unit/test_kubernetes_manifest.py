"""What is sent to a cluster: the objects of an attempt, as dicts."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import kubernetes_validate
import pytest
from kubernetes_validate.utils import all_versions, major_minor

from airflows import ids
from airflows.backends.base import Job
from airflows.backends.kubernetes import KubernetesSettings, paths
from airflows.backends.kubernetes.manifest import (
    Context,
    Parcel,
    UnfitJobError,
    config_map,
    job_object,
    literal,
    on_volume,
    service_object,
    spec_digest,
    sweep_label,
)
from airflows.backends.kubernetes.merging import merged
from airflows.backends.kubernetes.submitting import lost_fields
from airflows.testing.cluster.selectors import label_test

GOLDEN = Path(__file__).parents[1] / "data" / "kubernetes" / "job.json"
VERSIONS = [v for v in all_versions() if tuple(map(int, major_minor(v).split("."))) >= (1, 24)]


def job(**changes):
    fields = {
        "token": ids.token(ids.SweepId("digits-lr-3f9a1c"), 7, 0),
        "sweep": "digits-lr-3f9a1c",
        "number": 7,
        "attempt": 0,
        "launch_dir": Path("/home/me/.airflows/runs/digits-lr-3f9a1c/7/a0"),
        "files": {
            "command.sh": b"python train.py\n",
            "hyperparameters.yaml": b"lr: 0.001\n",
            "env_vars.json": b"[]",
        },
        "nodes": 2,
        "accelerators_per_node": 8,
        "accelerator_type": "GPU_8xH100",
        "work_dir": None,
        "env": {"AIRFLOWS_TRIAL": "7", "MLFLOW_RUN_ID": "abc", "GREETING": "$(date) costs $$5"},
        "secrets": {"HF_TOKEN": "nlp/hf-token"},
        "checkpoint_dir": "/mnt/ml/checkpoints/digits-lr-3f9a1c/7",
        "timeout_s": 43200.0,
    }
    return Job(**{**fields, **changes})


def with_uid(made):
    return {**made, "metadata": {**made["metadata"], "uid": "some-uid"}}


FULL = {
    "namespace": "ml",
    "image": "registry.example.com/team/train:1",
    "queue": "team-q",
    "queue_priority": "high",
    "pvc": {"claim": "ml-data", "mount": "/mnt/ml", "sub_path": "runs"},
    "accelerators": {
        "GPU_8xH100": {
            "node_selector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "cpus": 64,
            "memory": "900Gi",
            "resources": {"rdma/ib": 8},
        }
    },
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "image_pull_secrets": ["registry"],
    "image_pull_policy": "IfNotPresent",
    "service_account": "train",
    "env": {"NCCL_DEBUG": "WARN"},
    "env_from": ["wandb"],
    "security": "restricted",
    "shm": "64Gi",
    "priority_class": "batch",
}


CODE = Parcel(("digits-lr-3f9a1c-code-0123456789ab-0",), "0f" * 32, "src")


def context(version=(1, 36), code=CODE, **options):
    settings = KubernetesSettings(**options)
    return Context(settings, "ml", version, options.get("image", "python:3.11"), "airflows-tools-0123", code)


def main_of(made):
    return next(c for c in made["spec"]["template"]["spec"]["containers"] if c["name"] == "main")


def variables(made):
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in main_of(made)["env"]}


def test_a_job_with_everything_is_as_it_was_written_down():
    made = job_object(job(avoid=("node7",)), context(**FULL))

    assert made == json.loads(GOLDEN.read_text()), json.dumps(made, indent=1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [{}, FULL, {"in_place_restart": True, "pvc": "data"}])
def test_objects_are_valid_for_every_version_since_1_24(version, options):
    found = tuple(map(int, major_minor(version).split(".")))
    there = context(found, **options)
    attempt = job()
    objects = [
        job_object(attempt, there),
        job_object(replace(attempt, nodes=1, timeout_s=None, avoid=("a", "b")), there),
        service_object(with_uid(job_object(attempt, there))),
        config_map("tools", "ml", {"preamble.sh": b"true"}),
    ]
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)


def test_an_attempt_is_one_group_that_never_restarts():
    spec = job_object(job(), context())["spec"]

    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "Indexed")
    assert spec["backoffLimit"] == 0
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["podReplacementPolicy"] == "Failed"
    first, second = spec["podFailurePolicy"]["rules"]
    assert first == {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert second["onExitCodes"]["values"] == sorted(second["onExitCodes"]["values"]) == [64, 65]


def test_only_one_node_may_be_replaced_in_place():
    actions = [
        job_object(job(nodes=nodes), context(in_place_restart=True))["spec"]["podFailurePolicy"]["rules"][0][
            "action"
        ]
        for nodes in (1, 2)
    ]

    assert actions == ["Ignore", "FailJob"]


def test_fields_that_a_version_does_not_know_are_left_out():
    specs = {minor: job_object(job(), context((1, minor)))["spec"] for minor in (24, 25, 28)}

    assert "podFailurePolicy" not in specs[24]
    assert "podFailurePolicy" in specs[25]
    assert "podReplacementPolicy" not in specs[25]
    assert "podReplacementPolicy" in specs[28]


def test_fields_that_were_dropped_without_a_word_are_noticed():
    made = job_object(job(), context())
    answer = {"spec": {name: value for name, value in made["spec"].items() if name != "podFailurePolicy"}}

    assert lost_fields(made, answer) == ["podFailurePolicy"]
    assert lost_fields(made, made) == []


def test_secrets_are_references():
    made = job_object(job(), context())

    assert variables(made)["HF_TOKEN"] == {"secretKeyRef": {"name": "nlp", "key": "hf-token"}}


def test_node_variables_are_those_of_ai_runtime():
    made = variables(job_object(job(), context()))

    assert (made["NUM_NODES"], made["LOCAL_WORLD_SIZE"], made["WORLD_SIZE"]) == ("2", "8", "16")
    assert made["MASTER_ADDR"] == "digits-lr-3f9a1c-0007-a0-0.digits-lr-3f9a1c-0007-a0"
    assert "job-completion-index" in made["NODE_RANK"]["fieldRef"]["fieldPath"]
    alone = variables(job_object(job(nodes=1), context(accelerators={"GPU_8xH100": {"cpu": True}})))
    assert (alone["MASTER_ADDR"], alone["LOCAL_WORLD_SIZE"], alone["WORLD_SIZE"]) == ("127.0.0.1", "1", "1")


def test_nothing_of_a_text_is_taken_for_a_variable_of_the_cluster():
    assert literal("echo $HOME $1") == "echo $HOME $1"
    assert literal("$(date) $$") == "$$(date) $$$$"
    assert variables(job_object(job(), context()))["GREETING"] == "$$(date) costs $$$$5"


def test_gpus_are_a_limit_and_cpus_only_a_request():
    resources = main_of(job_object(job(), context(**FULL)))["resources"]

    assert resources["limits"] == {"rdma/ib": "8", "nvidia.com/gpu": 8, "memory": "900Gi"}
    assert resources["requests"] == {"cpu": "64", "memory": "900Gi"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"files": {"command.sh": b"x" * 130_000}}, "command.sh has 130,000 bytes"),
        ({"files": {"command.sh": b"\xff"}}, "is not UTF-8"),
        ({"env": {"BIG": "x" * 130_000}}, "variable BIG is longer"),
        ({"secret_env": {"MLFLOW_TRACKING_TOKEN": "t"}}, "MLFLOW_TRACKING_TOKEN must come from a Secret"),
    ],
)
def test_what_does_not_fit_into_a_manifest_is_said(changes, words):
    with pytest.raises(UnfitJobError, match=words):
        job_object(job(**changes), context())


def test_names_and_labels_fit_also_for_the_longest_sweep():
    sweep = ids.sweep_id("S" * 64, "digest")
    made = job_object(job(token=ids.token(sweep, 12_345_678, 3), sweep=sweep, nodes=10), context())
    labels = made["metadata"]["labels"]

    assert len(made["metadata"]["name"]) <= 52
    assert all(len(value) <= 63 for value in labels.values())
    assert labels["airflows/sweep"] == sweep_label(made["metadata"]["name"])
    assert made["metadata"]["annotations"]["airflows/sweep-id"] == sweep


def test_an_attempt_is_known_by_what_it_runs():
    code = Path("/home/snapshots/0f0f/src")
    one = spec_digest(job(code=code), "image:1")

    same = job(code=code, env={"MLFLOW_RUN_ID": "abc", "OTHER": "1"}, timeout_s=1.0)
    assert one == spec_digest(same, "image:1")
    assert one != spec_digest(same, "image:2")
    for change in (
        {"env": {"MLFLOW_RUN_ID": "def"}},
        {"files": {"command.sh": b"true"}},
        {"attempt": 1},
        {"code": Path("/home/snapshots/1e1e/src")},
    ):
        assert one != spec_digest(replace(same, **change), "image:1")


def test_a_template_of_one_s_own_adds_and_does_not_take_names_ranks_and_rendezvous():
    template = {
        "metadata": {"annotations": {"team": "nlp"}, "labels": {"airflows/trial": "99", "own": "1"}},
        "spec": {
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "main",
                    "command": ["sh"],
                    "env": [{"name": "NODE_RANK", "value": "9"}, {"name": "A", "value": "1"}],
                },
                {"name": "side", "image": "busybox"},
            ],
            "volumes": [{"name": "nfs", "nfs": {"server": "s", "path": "/p"}}],
        },
    }
    made = job_object(job(), context(pod_template=template))["spec"]["template"]
    pod, main = made["spec"], next(c for c in made["spec"]["containers"] if c["name"] == "main")

    assert made["metadata"]["labels"] == {
        "airflows/sweep": "digits-lr-3f9a1c",
        "airflows/trial": "7",
        "airflows/attempt": "0",
        "own": "1",
    }
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 5)
    assert main["command"][0] == "bash"
    named = {one["name"]: one for one in main["env"]}
    assert "valueFrom" in named["NODE_RANK"]
    assert "value" not in named["NODE_RANK"]
    assert named["A"] == {"name": "A", "value": "1"}
    assert [c["name"] for c in pod["containers"]] == ["main", "side"]
    assert "nfs" in [volume["name"] for volume in pod["volumes"]]


def test_null_removes_a_key_when_merging():
    assert merged({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}}) == {"b": {"c": 2, "d": 3}}


def test_paths_of_pods_are_found_on_this_machine(tmp_path):
    assert on_volume("/mnt/ml/checkpoints/x", "/mnt/ml", tmp_path) == tmp_path / "checkpoints" / "x"
    assert on_volume("/mnt/other", "/mnt/ml", tmp_path) is None


# Finding it again

SWEEPS = (ids.SweepId("digits-lr-3f9a1c"), ids.SweepId("9_Lives-00ff00"))


def tokens(sweep, numbers):
    return [ids.token(sweep, number, 0) for number in numbers]


@pytest.mark.parametrize(("count", "lists"), [(1, 1), (500, 1), (501, 2), (1000, 2), (1001, 1)])
def test_what_is_asked_for_is_selected_and_no_other_sweep(count, lists):
    ours, others = SWEEPS
    selectors = list(paths.selectors(tokens(ours, range(7, 7 + count))))
    fits = [label_test(selector) for selector in selectors]

    def found(sweep, number):
        made = job(token=ids.token(sweep, number, 3), number=number, attempt=3)
        return sum(fit(job_object(made, context())) for fit in fits)

    assert len(selectors) == lists
    assert [found(ours, number) for number in (7, 7 + count // 2, 6 + count)] == [1, 1, 1]
    assert found(others, 7) == 0
    assert found(ours, 7 + count) == (1 if count > 1000 else 0)


def test_an_address_is_one_that_proxies_take():
    ours, _ = SWEEPS
    selectors = paths.selectors(tokens(ours, range(99_999_400, 99_999_950)))

    assert max(len(quote(selector)) for selector in selectors) < 6000


def test_each_sweep_is_asked_for_by_itself():
    wanted = [*tokens(SWEEPS[0], [3, 12, 3]), *tokens(SWEEPS[1], [5]), "by-hand"]

    assert list(paths.selectors(wanted)) == [
        "airflows/sweep=by",
        "airflows/sweep=digits-lr-3f9a1c,airflows/trial in (3,12)",
        "airflows/sweep=s9-lives-00ff00,airflows/trial in (5)",
    ]
