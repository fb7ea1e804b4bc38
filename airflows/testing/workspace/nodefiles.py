"""What a node finds before its command starts: launch files, code, parameters, variables, secrets."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from posixpath import dirname
from typing import Any

from airflows.testing.workspace.exchange import ApiError
from airflows.testing.workspace.files import canonical
from airflows.testing.workspace.runs import Attempt, Run
from airflows.testing.workspace.world import World

_SIDECARS = frozenset(
    {
        "training_config.yaml",
        "hyperparameters.yaml",
        "env_vars.json",
        "secret_env_vars.json",
        "git_state.json",
    }
)
_CODE = "/databricks/code_source"
_MOUNTED = r"(?<!dbfs:)(?<![\w.-])/(?:Workspace|Volumes|dbfs)(?=/)"


class LaunchError(Exception):
    """The command cannot start; the message is what the run says."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """A node that is ready.

    Attributes:
        command: the script.
        base: variables that every process has.
        variables: those of this submission.
    """

    command: Path
    base: Mapping[str, str]
    variables: Mapping[str, str]


def prepared(world: World, run: Run, attempt: Attempt, rank: int) -> NodeFiles:
    """Return a node with all it needs, in a directory of its own.

    On a real node `/Workspace`, `/Volumes` and `/databricks` are mounted. Here they lie elsewhere,
    so that wherever a launch file or a variable names them, it gets the place on this machine instead.

    Raises:
        LaunchError: something the submission names is not there.
    """
    task: Mapping[str, Any] = run.ai_task or {}
    scratch = scratch_of(world, attempt) / f"node_{rank}"
    command_path = str(task["deployments"][0]["command_path"])
    launch = scratch / "launch"
    here = _translator(world, dirname(command_path), launch, scratch)
    files = _launch_files(world, command_path)
    launch.mkdir(parents=True)
    for name, content in files.items():
        (launch / name).write_bytes(_translated(content, here))
    variables = _variables(world, files, here)
    if "hyperparameters.yaml" in files:
        variables["HYPERPARAMETERS_PATH"] = str(launch / "hyperparameters.yaml")
    source = task.get("code_source_path")
    if source:
        variables["CODE_SOURCE_PATH"] = str(_unpacked(world, str(source), scratch / _CODE.lstrip("/")))
    return NodeFiles(launch / Path(command_path).name, _base(scratch), variables)


def scratch_of(world: World, attempt: Attempt) -> Path:
    """Return the directory of an attempt's nodes."""
    return world.directory / "nodes" / str(attempt.run_id)


def _launch_files(world: World, command_path: str) -> dict[str, bytes]:
    try:
        command = world.files.place(command_path)
    except ApiError as exc:
        raise LaunchError(exc.message) from None
    if not command.is_file():
        message = f"Command file {command_path} does not exist."
        raise LaunchError(message)
    names = {entry.name for entry in command.parent.iterdir() if entry.is_file()}
    found: dict[str, bytes] = {}
    # A directory may be shared by many runs, each with a script of its own: only what this one names comes
    # along, and what that names in turn.
    wanted = {command.name} | (names & _SIDECARS)
    while wanted:
        name = wanted.pop()
        found[name] = (command.parent / name).read_bytes()
        wanted |= {other for other in names - found.keys() if other.encode() in found[name]}
    return found


def _translator(world: World, beside: str, launch: Path, scratch: Path) -> Callable[[str], str]:
    places = {beside: str(launch), canonical(beside): str(launch), _CODE: str(scratch / _CODE.lstrip("/"))}
    literal = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    named = re.compile(f"(?:{literal})|{_MOUNTED}")
    root = str(world.files.root)
    return lambda text: named.sub(lambda found: places.get(found[0], f"{root}{found[0]}"), text)


def _translated(content: bytes, here: Callable[[str], str]) -> bytes:
    try:
        return here(content.decode()).encode()
    except UnicodeDecodeError:
        return content


def _variables(world: World, files: Mapping[str, bytes], here: Callable[[str], str]) -> dict[str, str]:
    given = json.loads(files.get("env_vars.json", b"[]"))
    variables = {str(item["name"]): here(str(item["value"])) for item in given}
    for item in json.loads(files.get("secret_env_vars.json", b"[]")):
        scope, key = item["secret_scope"], item["secret_key"]
        value = world.secrets.get(scope, {}).get(key)
        if value is None:
            message = f"Secret does not exist with scope: {scope} and key: {key}"
            raise LaunchError(message)
        variables[str(item["name"])] = value
    return variables


def _unpacked(world: World, path: str, target: Path) -> Path:
    content = world.files.read(path)
    if content is None:
        message = f"Code source {path} does not exist."
        raise LaunchError(message)
    target.mkdir(parents=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            archive.extractall(target, filter="data")
    except (tarfile.TarError, OSError) as exc:
        message = f"Code source {path} cannot be unpacked: {exc}"
        raise LaunchError(message) from None
    roots = [entry for entry in target.iterdir() if entry.is_dir()]
    if len(roots) != 1:
        message = f"Code source {path} must hold a single directory."
        raise LaunchError(message)
    return roots[0]


def _base(scratch: Path) -> dict[str, str]:
    # The interpreter that serves is the one that `python` means on a node.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    temporary = scratch / "tmp"
    temporary.mkdir()
    return {**kept, "PATH": path, "HOME": str(scratch), "TMPDIR": str(temporary)}
