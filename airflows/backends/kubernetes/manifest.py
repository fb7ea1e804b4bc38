"""Objects of the cluster, as dicts: the Job of an attempt, its Service, the ConfigMaps they read. Pure."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.backends.base import Job
from airflows.backends.kubernetes.merging import merged
from airflows.backends.kubernetes.settings import GPU, Equivalent, KubernetesSettings
from airflows.exits import OwnExit
from airflows.ids import digest

Object = dict[str, Any]
"""An object of the API, as JSON."""

SWEEP, TRIAL, ATTEMPT, SPEC = "airflows/sweep", "airflows/trial", "airflows/attempt", "airflows/spec"
BECAUSE = "airflows/ended-because"
MANAGED_BY = "app.kubernetes.io/managed-by"
INDEX = "batch.kubernetes.io/job-completion-index"
QUEUE = "kueue.x-k8s.io/queue-name"
MAIN = "main"
PORT = 29500

_QUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
_TOOLS_AT, _CODE_AT, _MESSAGES = "/airflows/tools", "/airflows/code", "/dev/termination-log"
# The kernel takes no single argument or variable above 128 KiB.
_MOST_TEXT_BYTES = 120_000
_LAUNCH_FILES = ("command.sh", "hyperparameters.yaml", "training_config.yaml")
_RESERVED = ("NUM_NODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "WORLD_SIZE")


class UnfitJobError(Exception):
    """A job cannot be put into a manifest; the message says why."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Files for pods, in ConfigMaps named after their content.

    Attributes:
        names: of the ConfigMaps, in order.
        digest: SHA-256 of the archive, empty for none.
        root: the directory in it that is the code, empty for none.
    """

    names: tuple[str, ...] = ()
    digest: str = ""
    root: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What the attempts of a sweep have in common.

    Attributes:
        settings: of the backend.
        namespace: of everything.
        version: of the cluster, such as (1, 36).
        image: of the pods.
        tools: the ConfigMap with the preamble.
        code: the ConfigMaps with the code.
        code_path: where the code is in the pods already, empty for nowhere.
    """

    settings: KubernetesSettings
    namespace: str
    version: tuple[int, int]
    image: str
    tools: str
    code: Parcel = Parcel()
    code_path: str = ""


def sweep_label(token: str) -> str:
    """Return the label that all attempts of a token's sweep have; the sweep's own id may be too long."""
    return token.rsplit("-", 2)[0]


def spec_digest(job: Job, image: str) -> str:
    """Return what tells an attempt from another one that has got the same name: what it runs."""
    files = {name: hashlib.sha256(job.files[name]).hexdigest() for name in sorted(job.files)}
    # Kept code is in a directory named after its digest.
    code = "" if job.code is None else f"{job.code.parent.name}/{job.code.name}"
    run = job.env.get("MLFLOW_RUN_ID", "")
    return digest([job.sweep, job.number, job.attempt, files, run, code, image])[:32]


def job_object(job: Job, context: Context) -> Object:
    """Return the Job of an attempt.

    Raises:
        UnfitJobError: it cannot be said in a manifest.
    """
    settings, place = context.settings, context.settings.place(job.accelerator_type)
    labels = _labels(job)
    spec: Object = {
        "completions": job.nodes,
        "parallelism": job.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": math.ceil(settings.keep),
    }
    if job.timeout_s is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(job.timeout_s))
    if context.version >= (1, 25):
        spec["podFailurePolicy"] = {"rules": _rules(settings, job.nodes, context.version)}
    if context.version >= (1, 28):
        spec["podReplacementPolicy"] = "Failed"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": str(job.token),
            "namespace": context.namespace,
            "labels": {
                **labels,
                SPEC: spec_digest(job, context.image),
                MANAGED_BY: "airflows",
                **_queue(place),
            },
            "annotations": {"airflows/sweep-id": job.sweep},
        },
        "spec": {**spec, "template": _template(job, context, place, labels)},
    }


def _labels(job: Job) -> dict[str, str]:
    return {SWEEP: sweep_label(job.token), TRIAL: str(job.number), ATTEMPT: str(job.attempt)}


def _queue(place: Equivalent) -> dict[str, str]:
    named = {QUEUE: place.queue, _QUEUE_PRIORITY: place.queue_priority}
    return {label: value for label, value in named.items() if value}


def _rules(settings: KubernetesSettings, nodes: int, version: tuple[int, int]) -> list[Object]:
    action = "Ignore" if settings.in_place_restart and nodes == 1 else "FailJob"
    own = sorted((OwnExit.INVALID, OwnExit.CODE_DAMAGED))
    codes = {"containerName": MAIN, "operator": "In", "values": [int(code) for code in own]}
    return [
        {"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        # The schemas before 1.29 have it as required, and empty it says nothing.
        {"action": "FailJob", "onExitCodes": codes, **({"onPodConditions": []} if version < (1, 29) else {})},
    ]


def service_object(made: Mapping[str, Any]) -> Object:
    """Return the headless Service under which the nodes of an attempt find each other, from its Job."""
    metadata = made["metadata"]
    name, uid, labels = metadata["name"], metadata["uid"], metadata.get("labels") or {}
    kept = {key: labels[key] for key in (SWEEP, TRIAL, ATTEMPT) if key in labels}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": False}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**kept, MANAGED_BY: "airflows"},
            "ownerReferences": [owner],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": name},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }


def config_map(name: str, namespace: str, files: Mapping[str, bytes], sweep: str = "") -> Object:
    """Return a ConfigMap with files, which nobody changes any more."""
    labels = {MANAGED_BY: "airflows", **({SWEEP: sweep} if sweep else {})}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "immutable": True,
        "binaryData": {key: base64.b64encode(content).decode() for key, content in files.items()},
    }


# The pods


def _template(job: Job, context: Context, place: Equivalent, labels: Mapping[str, str]) -> Object:
    settings = context.settings
    pod: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(settings.grace),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [_container(job, context, place)],
        "volumes": list(_volumes(context)),
    }
    if job.nodes > 1:
        pod["subdomain"] = str(job.token)
    pod |= {
        key: value
        for key, value in (
            ("serviceAccountName", settings.service_account),
            ("imagePullSecrets", [{"name": name} for name in settings.image_pull_secrets]),
            ("nodeSelector", place.node_selector),
            ("tolerations", place.tolerations),
            ("priorityClassName", place.priority_class),
            ("affinity", _affinity(job.avoid)),
        )
        if value
    }
    if settings.security == "restricted":
        pod["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    made: Object = {"metadata": {"labels": dict(labels)}, "spec": pod}
    return _with_own_template(made, settings.pod_template) if settings.pod_template else made


def _affinity(avoid: Sequence[str]) -> Object:
    """Return the wish for other machines than these, should there be any."""
    if not avoid:
        return {}
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [host]} for host in avoid]
    wish = {"weight": 100, "preference": {"matchFields": fields}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def _with_own_template(made: Object, wanted: Mapping[str, Any]) -> Object:
    """Merge the user's template; names, ranks and the rendezvous stay ours."""
    pod = made["spec"]
    (main,) = pod["containers"]
    kept_env = [each for each in main["env"] if each["name"] in _RESERVED or each["name"].startswith("AF_")]
    ours = {name: pod[name] for name in ("restartPolicy", "subdomain") if name in pod}
    kept_main = {"name": MAIN, "command": main["command"], "args": main["args"], "env": kept_env}
    both = merged(made, wanted)
    return merged(
        both,
        {"metadata": {"labels": made["metadata"]["labels"]}, "spec": {**ours, "containers": [kept_main]}},
    )


def _container(job: Job, context: Context, place: Equivalent) -> Object:
    settings = context.settings
    main: Object = {
        "name": MAIN,
        "image": context.image,
        "command": ["bash", f"{_TOOLS_AT}/preamble.sh"],
        "args": list(_arguments(job)),
        "env": list(_environment(job, context, place)),
        "resources": _resources(job, place),
        "terminationMessagePath": _MESSAGES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": list(_mounts(context)),
    }
    if settings.image_pull_policy is not None:
        main["imagePullPolicy"] = settings.image_pull_policy
    if settings.env_from:
        main["envFrom"] = [{"secretRef": {"name": name}} for name in settings.env_from]
    if settings.security == "restricted":
        main["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return main


def _arguments(job: Job) -> Iterator[str]:
    for name in _LAUNCH_FILES:
        if name not in job.files:
            continue
        content = job.files[name]
        if len(content) > _MOST_TEXT_BYTES:
            message = f"{name} has {len(content):,} bytes, and Kubernetes hands over {_MOST_TEXT_BYTES:,}."
            raise UnfitJobError(message)
        try:
            text = content.decode()
        except UnicodeDecodeError:
            message = f"{name} is not UTF-8."
            raise UnfitJobError(message) from None
        yield name
        yield literal(text)


def literal(text: str) -> str:
    """Return a text as the cluster must get it: it takes `$(NAME)` for a variable."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def gpus_of(place: Equivalent, accelerators_per_node: int) -> int:
    """Return the GPUs that one pod gets."""
    return 0 if place.cpu else place.gpus or accelerators_per_node


def _resources(job: Job, place: Equivalent) -> Object:
    gpus = gpus_of(place, job.accelerators_per_node)
    limits: dict[str, Any] = dict(place.resources or {})
    if gpus:
        limits[place.gpu_resource or GPU] = gpus
    if place.memory:
        limits["memory"] = place.memory
    # No limit on CPUs: it would slow the data loader down for nothing.
    requests = {name: value for name, value in (("cpu", place.cpus), ("memory", place.memory)) if value}
    return {name: value for name, value in (("limits", limits), ("requests", requests)) if value}


def _environment(job: Job, context: Context, place: Equivalent) -> Iterator[Object]:
    settings = context.settings
    rank = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    yield {"name": "NODE_RANK", "valueFrom": rank}
    values = {**job.env, **_node_variables(job, place), **_own_variables(job, context), **settings.env}
    references = {**job.secrets, **_tracking(job, settings)}
    for name in sorted(values):
        if name not in references:
            text = literal(values[name])
            if len(text.encode()) > _MOST_TEXT_BYTES:
                message = f"variable {name} is longer than {_MOST_TEXT_BYTES:,} bytes."
                raise UnfitJobError(message)
            yield {"name": name, "value": text}
    for name in sorted(references):
        secret, _, key = references[name].partition("/")
        yield {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _node_variables(job: Job, place: Equivalent) -> dict[str, str]:
    each = gpus_of(place, job.accelerators_per_node) or 1
    return {
        "NUM_NODES": str(job.nodes),
        "MASTER_ADDR": f"{job.token}-0.{job.token}" if job.nodes > 1 else "127.0.0.1",
        "MASTER_PORT": str(PORT),
        "LOCAL_WORLD_SIZE": str(each),
        "WORLD_SIZE": str(each * job.nodes),
    }


def _own_variables(job: Job, context: Context) -> dict[str, str]:
    own = {
        "AIRFLOWS_TOKEN": str(job.token),
        "AF_TOOLS": _TOOLS_AT,
        "AF_MESSAGES": _MESSAGES,
        "AF_GRACE": f"{context.settings.grace:.12g}",
        "AF_PATTERN": job.checkpoint_pattern,
    }
    if context.code.digest:
        own |= {"AF_CODE": _CODE_AT, "AF_CODE_SHA256": context.code.digest, "AF_CODE_NAME": context.code.root}
    if context.code_path:
        own["CODE_SOURCE_PATH"] = context.code_path
    return own


def _tracking(job: Job, settings: KubernetesSettings) -> dict[str, str]:
    """Return where MLflow's credentials are read: never in a manifest, which others may see.

    Raises:
        UnfitJobError: nothing says where.
    """
    needed = sorted(set(job.secret_env) - set(settings.env))
    if not needed:
        return {}
    if settings.tracking_secret is None:
        message = (
            f"{', '.join(needed)} must come from a Secret of the cluster: make one with these keys, and name"
            " it as backend.tracking_secret."
        )
        raise UnfitJobError(message)
    return {name: f"{settings.tracking_secret}/{name}" for name in needed}


def _volumes(context: Context) -> Iterator[Object]:
    settings = context.settings
    size = {"sizeLimit": settings.shm} if settings.shm else {}
    yield {"name": "shm", "emptyDir": {"medium": "Memory", **size}}
    yield {"name": "airflows-tools", "configMap": {"name": context.tools}}
    for number, name in enumerate(context.code.names):
        yield {"name": f"airflows-code-{number}", "configMap": {"name": name}}
    if settings.pvc is not None:
        yield {"name": "airflows-pvc", "persistentVolumeClaim": {"claimName": settings.pvc.claim}}


def _mounts(context: Context) -> Iterator[Object]:
    pvc = context.settings.pvc
    yield {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - the default is 64 MiB, too little for loaders
    yield {"name": "airflows-tools", "mountPath": _TOOLS_AT, "readOnly": True}
    for number, _ in enumerate(context.code.names):
        yield {"name": f"airflows-code-{number}", "mountPath": f"{_CODE_AT}/{number}", "readOnly": True}
    if pvc is not None:
        below = {"subPath": pvc.sub_path} if pvc.sub_path else {}
        yield {"name": "airflows-pvc", "mountPath": pvc.mount, **below}


def on_volume(path: str, mount: str, local: Path) -> Path | None:
    """Return where this machine sees what pods see as `path`; None when it is not on the volume."""
    inside = Path(path)
    return local / inside.relative_to(mount) if inside.is_relative_to(mount) else None
