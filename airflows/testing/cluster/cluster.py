"""The fake cluster as tests and programs use it."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from airflows.testing.cluster.access import Access
from airflows.testing.cluster.api import Api
from airflows.testing.cluster.control import Control
from airflows.testing.cluster.deletion import Deletion
from airflows.testing.cluster.faults import Faults
from airflows.testing.cluster.jobs import JobController
from airflows.testing.cluster.kinds import BY_RESOURCE, NAMESPACES
from airflows.testing.cluster.kubelet import Kubelet
from airflows.testing.cluster.kueue import Kueue
from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.podfiles import claim_directory
from airflows.testing.cluster.podlogs import PodLogs
from airflows.testing.cluster.quotas import Quotas
from airflows.testing.cluster.samples import send
from airflows.testing.cluster.scheduler import Nodes
from airflows.testing.cluster.server import ApiServer
from airflows.testing.cluster.settings import Settings
from airflows.testing.cluster.simulated import SimulatedContainers
from airflows.testing.cluster.steering import Pods
from airflows.testing.cluster.ticker import Ticker
from airflows.testing.cluster.world import ClusterClock, World
from airflows.testing.waiting import until
from airflows.testing.workspace.recording import Recorder

_Found = TypeVar("_Found")
_GLANCE_S = 0.02


class Cluster:
    """A Kubernetes cluster, served on the loopback interface by a thread.

    ```python
    with Cluster(namespaces=["ml"]) as cluster:
        ...
        cluster.clock.advance(60)
    ```
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        directory: Path | None = None,
        port: int = 0,
        **changes: Any,
    ) -> None:
        """Make one; `changes` are settings by name, `directory` keeps its files."""
        given = settings.model_dump() if settings else {}
        self.settings = Settings.model_validate({**given, **changes})
        self._temporary = None if directory else tempfile.mkdtemp(prefix="fake-cluster-")
        self.directory = directory or Path(str(self._temporary))
        world = self.world = World(self.settings, self.directory)
        for fault in self.settings.faults:
            world.faults.take(fault)
        deletion = Deletion(world)
        self._kubelet = Kubelet(world)
        self._kubelet.containers = SimulatedContainers(world, self._kubelet)
        self.nodes = Nodes(world, self._kubelet, deletion)
        self._quotas = Quotas(world)
        JobController(world, deletion, self._quotas)
        for name in self.settings.namespaces:
            world.store.add(NAMESPACES, world.make(NAMESPACES, {"metadata": {"name": name}}))
        for name in self.settings.claims:
            self.put("persistentvolumeclaims", {"metadata": {"name": name}})
        for name, content in self.settings.secrets.items():
            self.put("secrets", {"metadata": {"name": name}, "stringData": dict(content)})
        self.kueue = Kueue(world)
        self.pods = Pods(world, self._kubelet, deletion)
        api = Api(world, deletion, self._quotas, self.kueue, PodLogs(world, self._kubelet))
        try:
            control = Control(world, self.pods, self.nodes)
            self._server = ApiServer(("127.0.0.1", port), world, api, control)
        except OSError:
            self._remove_files()
            raise
        self._ticker = Ticker(world)
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        """Start to serve."""
        if self.settings.execute:
            from airflows.testing.cluster.processes import ProcessContainers  # noqa: PLC0415 - only for this

            self._kubelet.containers = ProcessContainers(self.world, self._kubelet)
        self._write_kubeconfig()
        self._ticker.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop: end the containers, the connections, the files."""
        self._ticker.stop()
        self._server.close_all()
        self._thread.join()
        self._kubelet.containers.close()
        self._remove_files()
        if self.recorder.broken and value is None:
            message = f"the fake cluster broke: {self.recorder.broken}"
            raise RuntimeError(message)

    @property
    def url(self) -> str:
        """Its address, such as `http://127.0.0.1:40001`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def token(self) -> str:
        """The token that the first user was given at first."""
        return self.settings.users[0].token

    @property
    def namespace(self) -> str:
        """The kubeconfig's namespace."""
        return self.settings.namespaces[0]

    @property
    def kubeconfig(self) -> Path:
        """The file by which clients find it; its token is the first user's."""
        return self.directory / "kubeconfig"

    @property
    def clock(self) -> ClusterClock:
        """Its time."""
        return self.world.clock

    @property
    def faults(self) -> Faults:
        """What goes wrong."""
        return self.world.faults

    @property
    def access(self) -> Access:
        """Who may do what."""
        return self.world.access

    @property
    def recorder(self) -> Recorder:
        """What was asked of it."""
        return self.world.recorder

    def renew(self, token: str) -> None:
        """Give the first user another token, written into the kubeconfig; old ones are good no longer."""
        with self.world.lock:
            first = self.settings.users[0]
            for known in [known for known, user in self.access.users.items() if user is first]:
                del self.access.users[known]
            self.access.users[token] = first
            self._write_kubeconfig(token)

    def quota(self, name: str, hard: Mapping[str, Any] | None = None, **limits: Any) -> None:
        """Limit the first namespace by a ResourceQuota: `pods=1`, or `{"count/jobs.batch": 3}`."""
        with self.world.lock:
            self._quotas.add(name, {**(hard or {}), **limits}, self.namespace)

    def expire_history(self) -> None:
        """Let every resourceVersion and continue token that was handed out be too old: 410."""
        with self.world.lock:
            self.world.store.forget_history()
            self.world.changed.notify_all()

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request with the first token; return status and JSON of the answer, whatever they are.

        Raises:
            OSError: none came.
        """
        authorised = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        status, _, content = send(self.url, method, path, body, authorised)
        return status, json.loads(content)

    def get(self, resource: str, name: str, namespace: str | None = None) -> Json | None:
        """Return an object as it is now, past the API; None when it is not there."""
        with self.world.lock:
            self.world.settle()
            return self.world.store.get(resource, self._place(resource, namespace), name)

    def list(self, resource: str, namespace: str | None = None) -> Sequence[Json]:
        """Return the objects of a kind in a namespace as they are now, past the API."""
        with self.world.lock:
            self.world.settle()
            return self.world.store.all(resource, self._place(resource, namespace))

    def changes(self, resource: str) -> Sequence[tuple[str, Json]]:
        """Return what has happened to the objects of a kind, as a watch tells it, as far back as one goes."""
        with self.world.lock:
            self.world.settle()
            return [(change.type, change.object) for change in self.world.store.since(0, resource)]

    def put(self, resource: str, body: Json, namespace: str | None = None) -> Json:
        """Store an object, past the API; in the place of one of the same name."""
        kind, where = BY_RESOURCE[resource], self._place(resource, namespace)
        with self.world.lock:
            known = self.world.store.get(resource, where, body["metadata"]["name"])
            if known is not None:
                self.world.store.remove(kind, known)
            return self.world.store.add(kind, self.world.make(kind, body, where))

    def claim(self, name: str) -> Path:
        """Return the directory that a PersistentVolumeClaim of the first namespace is on this machine."""
        return claim_directory(self.world, self.namespace, name)

    def wait_for(self, is_so: Callable[[], _Found], what: str, patience_s: float = 60.0) -> _Found:
        """Return what is asked for again and again, once it is something: for real containers.

        Raises:
            TimeoutError: it never is.
        """
        return until(is_so, what, patience_s=patience_s, pause=self._pause.wait, pause_s=_GLANCE_S)

    def _place(self, resource: str, namespace: str | None) -> str:
        return (namespace or self.namespace) if BY_RESOURCE[resource].is_namespaced else ""

    def _write_kubeconfig(self, token: str = "") -> None:
        name = "fake"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {"token": token or self.token}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": name, "namespace": self.namespace}}
            ],
        }
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        # JSON is YAML, and a file that is replaced is never read half written.
        written = self.kubeconfig.with_suffix(".new")
        written.write_text(json.dumps(config, indent=1), encoding="utf-8")
        written.chmod(0o600)
        written.replace(self.kubeconfig)

    def _remove_files(self) -> None:
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
