"""Which cluster, as whom: kubeconfig files as kubectl reads them, or the pod that airflows runs in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airflows.errors import BackendUnavailableError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = "in-cluster"
_HINT = "Name a kubeconfig (backend.kubeconfig, KUBECONFIG) and a context that `kubectl` works with."
_FILES = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}
_EXEC_V1 = "client.authentication.k8s.io/v1"
_EXEC_KNOWN = "client.authentication.k8s.io/v1beta1"


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster, as one user.

    Attributes:
        context: its name.
        namespace: of the context, `default` for none.
        cluster: as in a kubeconfig.
        user: as in a kubeconfig; empty for nobody.
    """

    context: str
    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]

    @property
    def server(self) -> str:
        """The address."""
        return str(self.cluster["server"])

    @property
    def place(self) -> tuple[str, str, str]:
        """What must stay the same while a driver runs; who asks may change."""
        return self.context, self.server, self.namespace


def find_access(
    kubeconfig: Path | None,
    context: str | None,
    environ: Mapping[str, str],
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Return where to go: the named file, KUBECONFIG, ~/.kube/config, or the pod's own service account.

    Raises:
        BackendUnavailableError: nothing leads to a cluster.
    """
    paths = _paths(kubeconfig, environ)
    found = [path for path in paths if path.is_file()]
    if found:
        return _from_files(found, context)
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in environ:
        return _in_cluster(environ, service_account)
    looked = ", ".join(map(str, paths))
    message = f"no configuration of a cluster was found: there is no {looked}."
    raise BackendUnavailableError(message, hint=_HINT)


def _paths(kubeconfig: Path | None, environ: Mapping[str, str]) -> list[Path]:
    if kubeconfig is not None:
        return [kubeconfig.expanduser()]
    if named := environ.get("KUBECONFIG"):
        return [Path(part).expanduser() for part in named.split(os.pathsep) if part]
    return [Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"]


def _from_files(paths: Sequence[Path], wanted: str | None) -> Access:
    parts: dict[str, dict[str, Mapping[str, Any]]] = {"clusters": {}, "users": {}, "contexts": {}}
    current = ""
    for path in paths:
        tree = _read(path)
        current = current or str(tree.get("current-context") or "")
        for kind, known in parts.items():
            # As kubectl has it: what a file says first counts.
            known |= {name: one for name, one in _named(tree, kind, path) if name not in known}
    name = wanted or current
    if not name:
        message = f"{paths[0]} has no current-context."
        raise BackendUnavailableError(message, hint="Set one with `kubectl config use-context`, or name it.")
    if name not in parts["contexts"]:
        message = f"there is no context {name} in {', '.join(map(str, paths))}."
        raise BackendUnavailableError(message, hint=f"There are: {', '.join(sorted(parts['contexts']))}.")
    chosen = parts["contexts"][name]
    cluster = parts["clusters"].get(str(chosen.get("cluster")))
    if cluster is None or not cluster.get("server"):
        message = f"context {name} names the cluster {chosen.get('cluster')}, which has no address."
        raise BackendUnavailableError(message, hint=_HINT)
    user = parts["users"].get(str(chosen.get("user")), {})
    return Access(name, str(chosen.get("namespace") or "default"), cluster, _plain_user(user))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as exc:
        # Never the text itself: it holds credentials.
        message = f"{path} cannot be read as a kubeconfig: {type(exc).__name__}."
        raise BackendUnavailableError(message, hint=_HINT) from None
    return tree if isinstance(tree, dict) else {}


def _named(tree: Mapping[str, Any], kind: str, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for entry in tree.get(kind) or ():
        one = dict(entry.get(kind.removesuffix("s")) or {})
        for key in _FILES.get(kind, ()):
            if one.get(key):
                one[key] = str(path.parent / one[key])
        yield str(entry.get("name")), one


def _plain_user(user: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a user whose program for tokens is asked in the form that lightkube knows."""
    wanted = user.get("exec") or {}
    if wanted.get("apiVersion") != _EXEC_V1:
        return user
    asked = {"kind": "ExecCredential", "apiVersion": _EXEC_V1, "spec": {"interactive": False}}
    variables = [*(wanted.get("env") or ()), {"name": "KUBERNETES_EXEC_INFO", "value": json.dumps(asked)}]
    return {**user, "exec": {**wanted, "apiVersion": _EXEC_KNOWN, "env": variables}}


def _in_cluster(environ: Mapping[str, str], directory: Path) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        message = f"this is a pod of a cluster, but {directory} cannot be read."
        raise BackendUnavailableError(
            message, hint="Give the pod a service account with its token."
        ) from None
    address = f"[{host}]" if ":" in host else host
    cluster = {
        "server": f"https://{address}:{port}",
        "certificate-authority": str(directory / "ca.crt"),
    }
    return Access(IN_CLUSTER, namespace or "default", cluster, {"tokenFile": str(directory / "token")})
