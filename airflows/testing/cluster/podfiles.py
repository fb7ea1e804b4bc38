"""What a container finds before its command starts: volumes, variables, and where they are here."""

from __future__ import annotations

import base64
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.world import World

POD_VARIABLE = "FAKE_CLUSTER_POD"
"""Variable that all processes of a container have, and no others: the pod's uid, a slash, its own name."""

_OWN_PLACES = ("/dev/shm",)  # noqa: S108 - each machine has one
_REFERENCE = re.compile(r"\$(\$|\((?P<name>[-._a-zA-Z0-9]+)\))")
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ready:
    """A container that can be started.

    Attributes:
        command: with its arguments.
        environment: all of its variables.
        directory: where it starts.
        message_file: what it may write for its pod's status.
    """

    command: list[str]
    environment: dict[str, str]
    directory: Path
    message_file: Path


class PodFiles:
    """The directories of one pod. The world's lock is held while they are made."""

    def __init__(self, world: World, pod: Json, port: int) -> None:
        self._world, self._pod, self._port = world, pod, port
        self.scratch = world.directory / "pods" / str(pod["metadata"]["uid"])
        self._volumes: dict[str, Path] = {}

    def container(self, container: Json) -> Ready:
        """Make what a container needs."""
        root = self.scratch / container["name"]
        (root / "tmp").mkdir(parents=True, exist_ok=True)
        message_file = root / "termination-log"
        message_file.touch()
        places = dict(self._mounted(container, root / "mounts"))
        places[container["terminationMessagePath"]] = message_file
        here = _translator(places, self._hosts())
        values = _base(root, self._world.settings.execution.inherit)
        values[POD_VARIABLE] = f"{self._pod['metadata']['uid']}/{container['name']}"
        for name, value in self._variables(container):
            values[name] = here(_expanded(value, values))
        if "MASTER_PORT" in values:
            # All pods of this machine share its ports.
            values["MASTER_PORT"] = str(self._port)
        command = [*(container.get("command") or ()), *(container.get("args") or ())]
        given = [here(_expanded(word, values)) for word in command]
        return Ready(given, values, root, message_file)

    def remove(self) -> None:
        """Take the directories away; claims stay."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def needs_service(self) -> bool:
        """Whether its name is not known yet, because its Service is not there."""
        spec = self._pod["spec"]
        return bool(spec.get("subdomain")) and not self._hosts()

    def _hosts(self) -> list[str]:
        """Return the names of pods that are known in the cluster, the longest first."""
        namespace = self._pod["metadata"]["namespace"]
        names = []
        for service in self._world.store.all("services", namespace):
            selector = service["spec"].get("selector") or {}
            own = service["metadata"]["name"]
            for pod in self._world.store.all("pods", namespace):
                spec, labels = pod["spec"], pod["metadata"].get("labels") or {}
                is_chosen = all(labels.get(key) == value for key, value in selector.items())
                if spec.get("subdomain") == own and is_chosen:
                    short = f"{spec['hostname']}.{own}"
                    names += [f"{short}.{namespace}.svc.cluster.local", f"{short}.{namespace}.svc", short]
        return names

    def _mounted(self, container: Json, root: Path) -> Iterator[tuple[str, Path]]:
        for mount in container.get("volumeMounts") or ():
            path = mount["mountPath"].rstrip("/")
            if path in _OWN_PLACES:
                continue
            source = self._volume(mount["name"]) / mount.get("subPath", "")
            if not source.exists():
                source.mkdir(parents=True)
            inside = root / path.lstrip("/")
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.symlink_to(source, target_is_directory=source.is_dir())
            yield path, inside
            for parent in list(Path(path).parents)[:-1]:
                # One that is there on this machine, such as /mnt, means the machine's own.
                if not parent.exists():
                    yield str(parent), root / str(parent).lstrip("/")

    def _volume(self, name: str) -> Path:
        if name not in self._volumes:
            given = next(item for item in self._pod["spec"]["volumes"] if item["name"] == name)
            self._volumes[name] = self._made(given)
        return self._volumes[name]

    def _made(self, volume: Json) -> Path:
        own = self.scratch / "volumes" / str(volume["name"])
        if "hostPath" in volume:
            return Path(str(volume["hostPath"]["path"]))
        if "persistentVolumeClaim" in volume:
            namespace = self._pod["metadata"]["namespace"]
            own = claim_directory(self._world, namespace, str(volume["persistentVolumeClaim"]["claimName"]))
        own.mkdir(parents=True, exist_ok=True)
        for source, resource, key in (
            ("configMap", "configmaps", "name"),
            ("secret", "secrets", "secretName"),
        ):
            if source in volume:
                self._unpack(volume[source], resource, volume[source][key], own)
        return own

    def _unpack(self, source: Json, resource: str, name: str, target: Path) -> None:
        content = contents(self._world, resource, self._pod["metadata"]["namespace"], name)
        listed = source.get("items") or [{"key": key, "path": key} for key in content]
        for item in listed:
            path = target / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content[item["key"]])
            path.chmod(item.get("mode", source.get("defaultMode", 0o644)))

    def _variables(self, container: Json) -> Iterator[tuple[str, str]]:
        namespace = self._pod["metadata"]["namespace"]
        for source in container.get("envFrom") or ():
            for field, resource in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
                if field in source:
                    content = contents(self._world, resource, namespace, source[field]["name"])
                    for name, value in content.items():
                        # What is written out is not expanded again.
                        yield source.get("prefix", "") + name, value.decode().replace("$", "$$")
        for variable in container.get("env") or ():
            if "valueFrom" not in variable:
                yield variable["name"], variable.get("value", "")
                continue
            found = self._value(variable["valueFrom"], namespace)
            if found is not None:
                yield variable["name"], found.replace("$", "$$")

    def _value(self, source: Json, namespace: str) -> str | None:
        if "fieldRef" in source:
            return _field(self._pod, source["fieldRef"]["fieldPath"])
        for field, resource in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
            if field in source:
                content = contents(self._world, resource, namespace, source[field]["name"])
                found = content.get(source[field]["key"])
                return None if found is None else found.decode()
        return None


def contents(world: World, resource: str, namespace: str, name: str) -> dict[str, bytes]:
    """Return what is in a Secret or a ConfigMap; nothing when it is not there."""
    found = world.store.get(resource, namespace, name) or {}
    text = {} if resource == "secrets" else found.get("data") or {}
    packed = found.get("data" if resource == "secrets" else "binaryData") or {}
    plain = {key: str(value).encode() for key, value in text.items()}
    return plain | {key: base64.b64decode(value) for key, value in packed.items()}


def claim_directory(world: World, namespace: str, claim: str) -> Path:
    """Return where this machine has a PersistentVolumeClaim."""
    return world.directory / "claims" / namespace / claim


def _field(pod: Json, path: str) -> str:
    read = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if read:
        return str((pod["metadata"].get(read[1]) or {}).get(read[2], ""))
    at: Any = pod
    for key in path.split("."):
        at = at.get(key, "") if isinstance(at, Mapping) else ""
    return str(at)


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` as the kubelet does: unknown names stay, `$$` is one dollar."""

    def replaced(found: re.Match[str]) -> str:
        return "$" if found["name"] is None else values.get(found["name"], found[0])

    return _REFERENCE.sub(replaced, text)


def _translator(places: Mapping[str, Path], hosts: list[str]) -> Callable[[str], str]:
    known = {**{path: str(place) for path, place in places.items()}, **dict.fromkeys(hosts, _LOOPBACK)}
    if not known:
        return lambda text: text
    literal = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    named = re.compile(rf"(?<![\w.-])(?:{literal})(?![\w-])")
    return lambda text: named.sub(lambda found: known[found[0]], text)


def _base(root: Path, inherit: Any) -> dict[str, str]:
    # The interpreter that serves is the one that `python` means in a container.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    kept = {name: os.environ[name] for name in inherit if name in os.environ}
    return {**kept, "PATH": path, "HOME": str(root), "TMPDIR": str(root / "tmp"), "GLOO_SOCKET_IFNAME": "lo"}
