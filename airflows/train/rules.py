"""What the values of a train.yaml must satisfy, in the order in which AI Runtime's CLI asks. Pure.

Offline: no workspace, no file system, no git. Lengths count UTF-8 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from airflows.keys import nearest
from airflows.train.shape import Path, fail

ACCELERATORS: Mapping[str, int] = MappingProxyType(
    {"GPU_1xA10": 1, "GPU_1xH100": 1, "GPU_8xH100": 8, "GPU_8xB300": 8}
)
"""Accelerator types and how many of them one node has."""

PRIORITY_CLASSES = ("BEST_EFFORT", "NORMAL", "CRITICAL")
TAG_POLICIES = ("auto", "latest")
MAX_NAME_BYTES = 100
MAX_TOKEN_BYTES = 64
MAX_POLICY_BYTES = 127
MAX_COMMAND_LINES = 1000
FLAT_KEYS = ("root_path", "remote_volume", "include_paths", "git")

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BRANCH = re.compile(r"[A-Za-z0-9_./-]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PRINCIPALS = ("user_name", "group_name", "service_principal_name")

Values = Mapping[str, Any]


def check(config: Values) -> None:
    """Check a shaped train.yaml.

    Raises:
        FieldError: the first rule that is broken.
    """
    for rule in _RULES:
        rule(config)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _name(value: str, path: Path) -> None:
    if not value.strip():
        fail(path, "This is empty.")
    if _size(value) > MAX_NAME_BYTES:
        fail(path, f"This is {_size(value)} bytes long; at most {MAX_NAME_BYTES} are allowed.")
    if _NAME.fullmatch(value) is None:
        fail(path, f"{value!r} may hold only letters, digits, `_` and `-`.")


def _not_blank(values: Values, key: str, path: Path, *, required: bool = False) -> None:
    if key not in values and required:
        fail((*path, key), f"{key} is missing.")
    if key in values and not values[key].strip():
        fail((*path, key), f"{key} is empty.")


def _experiment_name(config: Values) -> None:
    if "experiment_name" not in config:
        fail(("experiment_name",), "experiment_name is missing.")
    _name(config["experiment_name"], ("experiment_name",))


def _compute(config: Values) -> None:
    compute = config.get("compute")
    path: Path = ("compute",)
    if compute is None:
        fail(path, "compute is missing.", "It takes accelerator_type and num_accelerators.")
    kind = compute.get("accelerator_type")
    if kind not in ACCELERATORS:
        close = nearest(kind or "", ACCELERATORS)
        problem = "accelerator_type is missing" if kind is None else f"{kind!r} is no accelerator type"
        hint = f"Did you mean {close}?" if close else f"There are {', '.join(ACCELERATORS)}."
        fail((*path, "accelerator_type"), f"{problem}.", hint)
    _accelerators(compute, ACCELERATORS[kind], (*path, "num_accelerators"))
    _capacity(compute, path)


def _accelerators(compute: Values, per_node: int, path: Path) -> None:
    count = compute.get("num_accelerators")
    if count is None:
        fail(path, "num_accelerators is missing.")
    if count <= 0:
        fail(path, f"{count} is not a positive number.")
    if count % per_node:
        kind = compute["accelerator_type"]
        low, high = count // per_node * per_node, (count // per_node + 1) * per_node
        near = f"{low} or {high}" if low else str(high)
        fail(
            path,
            f"{count} is not a multiple of {per_node}, the accelerators of one {kind} node.",
            f"Use {near}.",
        )


def _capacity(compute: Values, path: Path) -> None:
    _not_blank(compute, "pool_id", path)
    priority = compute.get("priority_class")
    if priority is None:
        return
    here = (*path, "priority_class")
    if priority not in PRIORITY_CLASSES:
        fail(here, f"{priority!r} is no priority class.", f"There are {', '.join(PRIORITY_CLASSES)}.")
    if "pool_id" not in compute:
        fail(here, "priority_class needs compute.pool_id: only reserved capacity has priorities.")


def _environment(config: Values) -> None:
    environment = config.get("environment", {})
    path: Path = ("environment",)
    managed = [key for key in ("dependencies", "version") if key in environment]
    for image in ("docker_image", "unity_catalog_image"):
        if image in environment and managed:
            fail(
                (*path, image),
                f"{image} cannot be combined with {' and '.join(managed)}: the image brings its own.",
            )
    if managed == ["version"]:
        fail((*path, "version"), "version needs dependencies.", "Write `dependencies: []` for none.")
    if "docker_image" in environment:
        _docker_image(environment["docker_image"], (*path, "docker_image"))
        if "unity_catalog_image" in environment:
            fail((*path, "unity_catalog_image"), "unity_catalog_image cannot be combined with docker_image.")
    _not_blank(environment, "unity_catalog_image", path)


def _docker_image(image: Values, path: Path) -> None:
    _not_blank(image, "url", path, required=True)
    policy = image.get("tag_policy", "").strip().lower()
    if policy and policy not in TAG_POLICIES:
        fail(
            (*path, "tag_policy"), f"{image['tag_policy']!r} is no tag policy.", "There are auto and latest."
        )
    scope, key = (image.get(name, "").strip() for name in ("credentials_scope", "credentials_key"))
    if bool(scope) != bool(key):
        absent = "credentials_key" if scope else "credentials_scope"
        fail((*path, absent), "credentials_scope and credentials_key are given together or not at all.")
    if scope and policy != "latest":
        fail((*path, "tag_policy"), "credentials_scope and credentials_key need `tag_policy: latest`.")


def _command(config: Values) -> None:
    path: Path = ("command",)
    _not_blank(config, "command", (), required=True)
    lines = config["command"].count("\n") + 1
    if lines > MAX_COMMAND_LINES:
        fail(
            path,
            f"The command has {lines} lines; at most {MAX_COMMAND_LINES} are allowed.",
            "Move it to a script.",
        )


def _secrets(config: Values) -> None:
    secrets = config.get("secrets", {})
    for name, value in secrets.items():
        parts = value.split("/")
        if len(parts) != 2 or not all(parts):  # noqa: PLR2004 - a scope and a key
            fail(
                ("secrets", name),
                f"{value!r} is not a reference of the form scope/key for the secret {name}.",
            )
    both = sorted(set(secrets) & set(config.get("env_variables", {})))
    if both:
        fail(
            ("secrets", both[0]), f"{both[0]} is in both env_variables and secrets.", "Remove one of the two."
        )


def _code_source(config: Values) -> None:
    source = config.get("code_source")
    if source is None:
        return
    path: Path = ("code_source",)
    flat = [key for key in FLAT_KEYS if key in source]
    if flat and "snapshot" in source:
        here = (*path, flat[0])
        fail(here, f"{flat[0]} is given both here and under snapshot.", "Keep one of the two forms.")
    if source.get("type", "snapshot" if flat else None) != "snapshot":
        problem = f"{source['type']!r} is no code source type" if "type" in source else "type is missing"
        fail((*path, "type"), f"{problem}.", "Write `type: snapshot`.")
    if flat:
        _snapshot(source, path)
    elif "snapshot" not in source:
        fail((*path, "snapshot"), "snapshot is missing.", "It takes root_path.")
    else:
        _snapshot(source["snapshot"], (*path, "snapshot"))


def _snapshot(snapshot: Values, path: Path) -> None:
    _not_blank(snapshot, "root_path", path, required=True)
    volume = snapshot.get("remote_volume")
    if volume is not None and not volume.startswith("/Volumes/"):
        fail((*path, "remote_volume"), f"{volume!r} does not start with /Volumes/.")
    if "include_paths" in snapshot:
        _include_paths(snapshot["include_paths"], (*path, "include_paths"))
    if "git" in snapshot:
        _git(snapshot["git"], (*path, "git"))


def _include_paths(paths: list[str], path: Path) -> None:
    if not paths:
        fail(path, "include_paths is an empty list.", "Leave it out to take everything.")
    for at, item in enumerate(paths):
        entry = item.strip()
        if not entry:
            fail((*path, at), "A path is empty.")
        if entry.startswith("/"):
            fail((*path, at), f"{entry!r} is absolute; paths are relative to root_path.")
        if ".." in entry.split("/"):
            fail((*path, at), f"{entry!r} leaves root_path through `..`.")


def _git(git: Values, path: Path) -> None:
    branch, commit, remote = git.get("branch"), git.get("commit"), git.get("remote")
    if branch is not None and _BRANCH.fullmatch(branch) is None:
        fail((*path, "branch"), f"{branch!r} may hold only letters, digits and `_./-`.")
    if remote is not None and remote is not False and remote != "":
        fail(
            (*path, "remote"),
            "A remote cannot be used: the commit is taken from this repository.",
            "Leave remote out.",
        )
    if branch is None and commit is None:
        fail(path, "git needs a branch or a commit.")
    if branch is not None and commit is not None:
        fail(path, "git takes a branch or a commit, not both.")


def _numbers(config: Values) -> None:
    retries, timeout = config.get("max_retries"), config.get("timeout_minutes")
    if retries is not None and retries < 0:
        fail(("max_retries",), f"{retries} is negative.", "0 means no retries.")
    if timeout is not None and timeout < 1:
        fail(("timeout_minutes",), f"{timeout} is less than 1 minute.", "Leave it out for no limit.")


def _token(config: Values) -> None:
    path: Path = ("idempotency_token",)
    _not_blank(config, "idempotency_token", ())
    size = _size(config.get("idempotency_token", ""))
    if size > MAX_TOKEN_BYTES:
        fail(path, f"This is {size} bytes long; at most {MAX_TOKEN_BYTES} are allowed.")


def _mlflow(config: Values) -> None:
    if "mlflow_run_name" in config:
        _name(config["mlflow_run_name"].strip(), ("mlflow_run_name",))
    _not_blank(config, "mlflow_experiment_directory", ())
    directory = config.get("mlflow_experiment_directory")
    if directory is not None and not directory.strip().startswith("/Workspace"):
        fail(("mlflow_experiment_directory",), f"{directory!r} does not start with /Workspace.")
    _not_blank(config, "mlflow_artifact_location", ())


def _permissions(config: Values) -> None:
    for at, permission in enumerate(config.get("permissions", ())):
        path: Path = ("permissions", at)
        given = [name for name in _PRINCIPALS if name in permission]
        if len(given) != 1:
            problem = f"{' and '.join(given)} are given" if given else "Nobody is named"
            fail(path, f"{problem}; exactly one of {', '.join(_PRINCIPALS)} is needed.")
        _not_blank(permission, given[0], path)
        _not_blank(permission, "level", path, required=True)


def _usage_policy(config: Values) -> None:
    name, identity = config.get("usage_policy_name"), config.get("usage_policy_id")
    if name is not None and identity is not None:
        fail(("usage_policy_name",), "usage_policy_name and usage_policy_id cannot be given together.")
    _not_blank(config, "usage_policy_name", ())
    if name is not None and _size(name.strip()) > MAX_POLICY_BYTES:
        fail(
            ("usage_policy_name",),
            f"This is {_size(name.strip())} bytes long; at most {MAX_POLICY_BYTES} are allowed.",
        )
    _not_blank(config, "usage_policy_id", ())
    if identity is not None and _UUID.fullmatch(identity.strip()) is None:
        fail(
            ("usage_policy_id",),
            f"{identity!r} is not a UUID.",
            "For a policy's name there is usage_policy_name.",
        )


_RULES = (
    _experiment_name,
    _compute,
    _environment,
    _command,
    _secrets,
    _code_source,
    _numbers,
    _token,
    _mlflow,
    _permissions,
    _usage_policy,
)


def settle(config: Values) -> dict[str, Any]:
    """Return a checked train.yaml in its canonical form: trimmed, the flat code source unfolded."""
    result = dict(config)
    if "docker_image" in config.get("environment", {}):
        image = _settled_image(config["environment"]["docker_image"])
        result["environment"] = {**config["environment"], "docker_image": image}
    if "code_source" in config:
        source = config["code_source"]
        snapshot = dict(source.get("snapshot") or {key: source[key] for key in FLAT_KEYS if key in source})
        if "include_paths" in snapshot:
            snapshot["include_paths"] = [item.strip() for item in snapshot["include_paths"]]
        if "git" in snapshot:
            snapshot["git"] = {**snapshot["git"], "remote": False}
        result["code_source"] = {"type": "snapshot", "snapshot": snapshot}
    return result


def _settled_image(image: Values) -> dict[str, str]:
    trimmed = {key: value.strip() for key, value in image.items()}
    trimmed["tag_policy"] = trimmed.get("tag_policy", "").lower() or TAG_POLICIES[0]
    return {key: value for key, value in trimmed.items() if value}
