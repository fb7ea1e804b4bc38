"""How a fake cluster is set up: in Python, or by a script in YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from airflows.testing.cluster.faults import Fault
from airflows.testing.cluster.plans import PlanRule, PodPlan
from airflows.yamlio import parse


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Rule(_Part):
    """What a restricted user may do."""

    verbs: Sequence[str] = Field(description="such as create, get, list; or *")
    resources: Sequence[str] = Field(description="such as jobs.batch, pods, pods/log; or *")
    namespaces: Sequence[str] = Field(("*",), description="where; * is everywhere")


class Account(_Part):
    """Somebody with a token."""

    name: str = Field("admin", description="user name")
    token: str = Field("fake-token", description="bearer token")
    rules: Sequence[Rule] | None = Field(None, description="what they may do; null: all")


class QueueSettings(_Part):
    """Kueue."""

    queues: Mapping[str, str] = Field({}, description="LocalQueue, in each namespace, to ClusterQueue")
    quotas: Mapping[str, Mapping[str, str | int | float]] = Field(
        {}, description="ClusterQueue to resources; one that is left out is endless"
    )
    priorities: Mapping[str, int] = Field({}, description="WorkloadPriorityClass to its value")


class ExecutionSettings(_Part):
    """How containers are really run, with `execute`."""

    inherit: Sequence[str] = Field(("LANG", "LC_ALL"), description="variables of this process they see")
    service_wait_s: float = Field(5.0, ge=0, description="real seconds that a pod waits for its Service")


class Settings(_Part):
    """All of it."""

    execute: bool = Field(False, description="really run the containers")
    seed: int = Field(0, description="of all chances and made-up names")
    clock_scale: float = Field(0.0, ge=0, description="0: stands until advanced; 1: real time; 10: faster")
    clock_start: float | None = Field(None, description="seconds since the epoch; null: now")
    version: str = Field("1.36.2", description="of Kubernetes")
    namespaces: Sequence[str] = Field(("default",), min_length=1, description="the first is the kubeconfig's")
    users: Sequence[Account] = Field((Account(),), min_length=1, description="the first is the kubeconfig's")
    nodes: Mapping[str, Mapping[str, Any]] = Field(
        {}, description="name to resources, labels and taints; none: one node with room for everything"
    )
    claims: Sequence[str] = Field((), description="PersistentVolumeClaims of the first namespace")
    secrets: Mapping[str, Mapping[str, str]] = Field(
        {}, description="Secrets of the first namespace: name to key to value"
    )
    missing_images: Sequence[str] = Field((), description="globs of images that cannot be pulled")
    default: PodPlan = Field(PodPlan(), description="of pods that no plan fits")
    plans: Sequence[PlanRule] = Field((), description="what pods do; the last that fits counts")
    faults: Sequence[Fault] = Field((), description="what goes wrong; the first that fits happens")
    kueue: QueueSettings | None = Field(None, description="null: not installed")
    history: int = Field(1000, ge=1, description="changes that a watch can go back")
    execution: ExecutionSettings = Field(ExecutionSettings(), description="of real containers")

    @property
    def minor(self) -> int:
        """The minor version, such as 36."""
        return int(self.version.lstrip("v").split(".")[1])


def load_settings(path: Path, **changes: Any) -> Settings:
    """Return the settings of a script, with changes.

    Raises:
        ValueError: a key or value is not known.
        TypeError: it is no mapping.
        SpecError: it is no YAML.
        OSError: it cannot be read.
    """
    document = parse(path.read_text(encoding="utf-8"), file=str(path), dialect="sweep").value or {}
    if not isinstance(document, Mapping):
        message = f"{path}: a script is a mapping of settings"
        raise TypeError(message)
    try:
        return Settings.model_validate({**document, **changes})
    except ValidationError as exc:
        lines = [f"{path}: {'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()]
        raise ValueError("\n".join(lines)) from None
