"""Smaller parts of the Kubernetes backend: options, kubeconfigs, refusals, archives."""

import json
import random
import re
import sys
import tarfile
import threading
from io import BytesIO
from pathlib import Path

import pytest
from pydantic import ValidationError

from airflows.backends import registry
from airflows.backends.kubernetes import KubernetesSettings, parcels
from airflows.backends.kubernetes.kubeconfig import find_access
from airflows.backends.kubernetes.listing import remote_run
from airflows.backends.kubernetes.logs import LogKeeper
from airflows.backends.kubernetes.manifest import SPEC
from airflows.backends.kubernetes.parcels import archive, tools
from airflows.backends.kubernetes.pods import Pod
from airflows.backends.kubernetes.refusals import in_words, refusal_of
from airflows.backends.kubernetes.settings import Equivalent, Volume
from airflows.backends.kubernetes.submitting import plain_image, version_of
from airflows.errors import BackendUnavailableError, SpecError
from airflows.trial import Handle

# Options


def test_every_option_has_a_description():
    schema = registry.settings_model("kubernetes").model_json_schema()
    described = [*schema["properties"].values()]
    for name in ("Equivalent", "Volume"):
        described += schema["$defs"][name]["properties"].values()

    assert all(option.get("description") for option in described)


def test_every_option_is_on_the_page():
    page = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text()
    models = (KubernetesSettings, Equivalent, Volume)
    names = {name for model in models for name in model.model_fields} - {"type", "root", "patience", "cpu"}

    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", page)] == []


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"imge": "x"}, "backend.imge", "Did you mean image?"),
        ({"namespace": "Not A Name"}, "backend.namespace", "pattern"),
        ({"memory": "much"}, "backend.memory", "pattern"),
        ({"code": "pvc"}, "backend", "needs `pvc:"),
        ({"keep": "10m"}, "backend", "at least 1h"),
        ({"pod_template": {"spec": 1}}, "backend.pod_template", "spec must be a mapping"),
        (
            {"pod_template": {"spec": {"containers": [{"name": "main", "env": ["A=1"]}]}}},
            "backend.pod_template",
            "spec.containers.env must be a list of mappings, each with its name",
        ),
        (
            {"pod_template": {"spec": {"containers": {"main": {}}}}},
            "backend.pod_template",
            "spec.containers must be",
        ),
        (
            {"pod_template": {"spec": {"containers": [{"name": "main", "env": None}]}}},
            "backend.pod_template",
            "env must",
        ),
        (
            {"pod_template": {"spec": {"containers": [{"env": [{"name": "A", "value": "1"}]}]}}},
            "backend.pod_template",
            "spec.containers must be a list of mappings, each with its name",
        ),
        ({"pod_template": {"spec": {"tolerations": 3}}}, "backend.pod_template", "tolerations must"),
        ({"grace": "soon"}, "backend.grace", "is not a duration"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(tmp_path, options, field, words):
    with pytest.raises(SpecError) as caught:
        registry.open_backend({"type": "kubernetes", **options}, tmp_path)

    assert caught.value.field == field
    assert words in str(caught.value)


def test_maps_of_a_template_may_have_any_keys():
    template = {"metadata": {"labels": {"env": "prod"}}, "spec": {"nodeSelector": {"ports": "many"}}}

    assert KubernetesSettings(pod_template=template).pod_template == template


def test_what_an_accelerator_type_says_goes_before_what_is_said_for_all():
    settings = KubernetesSettings(
        cpus=4, queue="all", accelerators={"GPU_8xH100": {"cpus": 64, "gpu_resource": "amd.com/gpu"}}
    )

    assert (settings.place("GPU_8xH100").cpus, settings.place("GPU_8xH100").queue) == ("64", "all")
    assert settings.place("GPU_1xA10").cpus == "4"


def test_how_code_gets_to_pods_follows_from_what_is_there(tmp_path):
    assert KubernetesSettings().code_way == "config_map"
    assert KubernetesSettings(pvc="data").code_way == "config_map"
    assert KubernetesSettings(pvc={"claim": "data", "local": tmp_path}).code_way == "pvc"
    assert KubernetesSettings(code="image").code_way == "image"
    with pytest.raises(ValidationError):
        KubernetesSettings(code="pvc", pvc="data")


# Which cluster


def config(path, **parts):
    def entries(kind):
        return [{"name": name, kind: value} for name, value in parts.get(f"{kind}s", {}).items()]

    tree = {kind + "s": entries(kind) for kind in ("cluster", "user", "context")}
    path.write_text(
        json.dumps({**tree, **({"current-context": parts["current"]} if "current" in parts else {})})
    )
    return path


def test_several_kubeconfigs_are_read_as_one_and_the_first_word_counts(tmp_path):
    one = config(
        tmp_path / "one",
        current="dev",
        contexts={"dev": {"cluster": "c", "user": "u", "namespace": "ml"}},
        clusters={"c": {"server": "https://one", "certificate-authority": "ca.crt"}},
    )
    other = config(
        tmp_path / "other", current="x", clusters={"c": {"server": "https://no"}}, users={"u": {"token": "t"}}
    )
    found = find_access(None, None, {"KUBECONFIG": f"{one}:{tmp_path}/none:{other}"})

    assert (found.context, found.namespace) == ("dev", "ml")
    assert found.cluster == {"server": "https://one", "certificate-authority": str(tmp_path / "ca.crt")}
    assert found.user == {"token": "t"}


def test_the_pod_s_own_account_is_taken_where_there_is_no_kubeconfig(tmp_path):
    (tmp_path / "namespace").write_text("team\n")
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = find_access(None, None, environ, tmp_path)

    assert (found.namespace, found.cluster["server"]) == ("team", "https://[::1]:6443")
    assert found.user == {"tokenFile": f"{tmp_path}/token"}


def test_a_program_for_tokens_is_asked_in_the_form_it_was_made_for(tmp_path):
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}
    path = config(
        tmp_path / "config",
        current="dev",
        contexts={"dev": {"cluster": "c", "user": "u"}},
        clusters={"c": {"server": "https://one"}},
        users={"u": {"exec": program}},
    )
    asked = find_access(path, None, {}).user["exec"]

    assert asked["apiVersion"].endswith("/v1beta1")
    assert json.loads(asked["env"][0]["value"])["apiVersion"] == "client.authentication.k8s.io/v1"


@pytest.mark.parametrize(
    ("parts", "context", "words"),
    [
        ({}, None, "has no current-context"),
        ({"current": "dev"}, None, "there is no context dev"),
        ({"current": "dev", "contexts": {"dev": {"cluster": "c"}}}, None, "which has no address"),
        ({"contexts": {"dev": {"cluster": "c"}}}, "prod", "There are: dev"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere_is_an_error(tmp_path, parts, context, words):
    with pytest.raises(BackendUnavailableError) as caught:
        find_access(config(tmp_path / "config", **parts), context, {})

    assert words in str(caught.value)


def test_a_kubeconfig_that_cannot_be_read_does_not_show_its_secrets(tmp_path):
    path = tmp_path / "config"
    path.write_text("users: [{token: s3cret")

    with pytest.raises(BackendUnavailableError) as caught:
        find_access(path, None, {})
    assert "s3cret" not in str(caught.value)


# What a server answers


def status(code, reason, message, **details):
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    )


def test_a_right_that_is_missing_is_named():
    message = (
        'jobs.batch is forbidden: User "system:serviceaccount:team:sweeper" cannot create resource "jobs" in'
        ' API group "batch" in the namespace "nope"'
    )
    words = in_words(refusal_of(403, status(403, "Forbidden", message)), "nope")

    assert "the verb create on jobs of batch in namespace nope" in words
    assert "or there is no such namespace" in words


def test_a_field_that_is_wrong_is_named():
    causes = [{"field": "metadata.name", "message": "must be no more than 63 characters"}]
    words = in_words(refusal_of(422, status(422, "Invalid", "long", causes=causes)), "ml")

    assert words == "the cluster refuses it: metadata.name: must be no more than 63 characters."


def test_a_page_of_a_proxy_is_shown_without_its_markup():
    error = refusal_of(502, "<html><title>502 Bad Gateway</title></html>")

    assert (error.message, error.is_busy, error.is_final) == ("502 Bad Gateway", True, False)


def test_a_quota_is_no_refusal_for_ever():
    error = refusal_of(
        403, status(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q, used: pods=1')
    )

    assert error.is_quota
    assert not error.is_final


@pytest.mark.parametrize(
    ("retry", "details", "seconds"), [("7", {}, 7), ("", {"retryAfterSeconds": 3}, 3), ("", {}, None)]
)
def test_when_to_ask_again_is_read(retry, details, seconds):
    assert refusal_of(429, status(429, "TooManyRequests", "busy", **details), retry).retry_after_s == seconds


@pytest.mark.parametrize(
    ("answer", "expected"),
    [({"major": "1", "minor": "36"}, (1, 36)), ({"major": "1", "minor": "27+"}, (1, 27)), ({}, (0, 0))],
)
def test_versions_of_vendors_are_read(answer, expected):
    assert version_of(answer) == expected


def test_an_image_s_address_is_that_of_a_pod():
    assert plain_image("docker://registry/team:1") == "registry/team:1"


# Files


def test_the_same_code_is_the_same_archive(tmp_path):
    packed = []
    for place in ("one", "other"):
        code = tmp_path / place / "src"
        code.mkdir(parents=True)
        (code / "train.py").write_text("print(1)\n")
        (code / "run").symlink_to("train.py")
        (code / "train.py").chmod(0o555)
        packed.append(archive(code))

    assert packed[0] == packed[1]
    with tarfile.open(fileobj=BytesIO(packed[0])) as tar:
        assert sorted(tar.getnames()) == ["src/run", "src/train.py"]
        assert tar.getmember("src/train.py").mode & 0o200


def test_packing_stops_where_config_maps_hold_no_more(tmp_path, monkeypatch):
    code = tmp_path / "src"
    code.mkdir()
    for number in range(9):
        (code / f"{number}.bin").write_bytes(random.Random(number).randbytes(1_000_000))
    added = []
    plain = parcels._plain
    monkeypatch.setattr(parcels, "_plain", lambda member: added.append(member) or plain(member))

    with pytest.raises(parcels.TooLargeError):
        archive(code)
    assert len(added) < 7


def test_a_log_is_copied_once_however_many_ask_for_it(tmp_path, monkeypatch):
    started, at_once, at_end = [], threading.Barrier(8), threading.Event()
    keeper = LogKeeper(None, tmp_path)
    monkeypatch.setattr(LogKeeper, "_copy", lambda _self, *_args: started.append(1) or at_end.wait(10))
    pod = Pod("u", "p", 0, 0.0, "Running")

    def ask():
        at_once.wait(10)
        keeper.follow(Handle("lr-0a1b2c-0000-a0"), pod)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
        at_end.set()

    assert len(started) == 1


def test_the_tools_fit_into_one_config_map():
    assert {"preamble.sh", "checkpoints.py"} == set(tools())
    assert sum(map(len, tools().values())) < 100_000


# What there is


@pytest.mark.parametrize(
    ("name", "labels", "conditions", "is_shown"),
    [
        ("lr-0a1b2c-0003-a0", {SPEC: "x"}, [], True),
        ("lr-0a1b2c-0003-a0", {}, [], False),
        ("something-else", {SPEC: "x"}, [], False),
        ("lr-0a1b2c-0003-a0", {SPEC: "x"}, [{"type": "Complete", "status": "True"}], False),
    ],
)
def test_only_our_own_that_have_not_ended_are_listed(name, labels, conditions, is_shown):
    job = {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": "2026-11-30T04:00:00Z"},
        "spec": {"completions": 1, "suspend": True},
        "status": {"conditions": conditions},
    }
    run = remote_run(job, [])

    assert (run is not None) == is_shown
    if run is not None:
        assert (run.token, run.word) == (name, "SUSPENDED")
