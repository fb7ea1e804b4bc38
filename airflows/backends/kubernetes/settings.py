"""What `backend: {type: kubernetes, ...}` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from airflows.backends.kubernetes.merging import unfit
from airflows.durations import parse_duration


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
Quantity = Annotated[str, BeforeValidator(_text), Field(pattern=r"^[0-9.]+([eE][0-9]+|[a-zA-Z]{0,2})$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]

GPU = "nvidia.com/gpu"


class Place(BaseModel):
    """What a pod asks for; for an accelerator type it replaces what is asked for otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node_selector: dict[str, str] | None = Field(
        None, description="Labels that a node must have, such as `nvidia.com/gpu.product: NVIDIA-A10`."
    )
    tolerations: list[dict[str, Any]] | None = Field(
        None, description="Taints that pods put up with, as in a pod's `tolerations`."
    )
    cpus: Quantity | None = Field(None, description="CPUs that one pod requests, such as 8 or 500m.")
    memory: Quantity | None = Field(
        None, description="Memory that one pod requests and may use at most, such as 64Gi."
    )
    resources: dict[str, Quantity] | None = Field(
        None, description="Further resources of one pod, as limits, such as `rdma/ib: 1`."
    )
    gpu_resource: str | None = Field(
        None, description=f"The resource that counts GPUs: {GPU} (default), amd.com/gpu, a MIG slice."
    )
    priority_class: Name | None = Field(None, description="PriorityClass of the pods.")
    queue: Name | None = Field(
        None, description="LocalQueue of Kueue that trials wait in; without it pods are created at once."
    )
    queue_priority: Name | None = Field(None, description="WorkloadPriorityClass of Kueue.")


class Equivalent(Place):
    """What stands for an accelerator type of AI Runtime on this cluster."""

    cpu: bool = Field(False, description="Run without GPUs.")
    gpus: int | None = Field(
        None, ge=1, description="GPUs that one pod gets; as many as the type has when left out."
    )


class Volume(BaseModel):
    """A PersistentVolumeClaim that pods mount."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: Name = Field(description="Name of the claim, in the namespace of the pods.")
    mount: str = Field("/mnt/airflows", pattern=r"^/[^:]+$", description="Where pods see it.")
    sub_path: str | None = Field(None, min_length=1, description="Directory in it that is mounted.")
    local: Path | None = Field(
        None,
        description="Where this machine sees the same directory, if it does: code goes there, and"
        " checkpoints are looked at.",
    )


class KubernetesSettings(Place):
    """Options of the Kubernetes backend."""

    type: Literal["kubernetes"] = Field("kubernetes", description="Always `kubernetes`.")
    kubeconfig: Path | None = Field(
        None,
        description="Configuration file; else KUBECONFIG, ~/.kube/config, or the pod that airflows runs in.",
    )
    context: str | None = Field(None, min_length=1, description="Context of it; the current one if left out.")
    namespace: Name | None = Field(
        None, description="Where Jobs are made; that of the context when left out."
    )
    image: str | None = Field(
        None,
        min_length=1,
        description="Image of the pods where the train.yaml has no environment.docker_image. It needs bash.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When the image is pulled; Kubernetes decides when left out."
    )
    image_pull_secrets: list[Name] = Field(
        default_factory=list, description="Secrets with which images are pulled."
    )
    service_account: Name | None = Field(
        None, description="Service account of the pods; they get no token of it."
    )
    accelerators: dict[str, Equivalent] = Field(
        default_factory=dict, description="What stands for an accelerator type here, by type."
    )
    pvc: Volume | None = Field(None, description="Volume for checkpoints and code: a name, or its options.")
    code: Literal["auto", "pvc", "config_map", "image"] = Field(
        "auto",
        description="How code_source gets to pods: `pvc` (needs pvc.local), `config_map` (up to 4 MB packed),"
        " `image` (it is there already); auto is pvc where that can be, else config_map.",
    )
    code_path: str | None = Field(
        None, pattern="^/", description="CODE_SOURCE_PATH with `code: image`: where the image has the code."
    )
    env: dict[str, Annotated[str, BeforeValidator(_text)]] = Field(
        default_factory=dict,
        description="Variables of the pods, which replace those of airflows, such as MLFLOW_TRACKING_URI as"
        " the cluster sees it.",
    )
    env_from: list[Name] = Field(
        default_factory=list, description="Secrets whose keys become variables of the pods."
    )
    tracking_secret: Name | None = Field(
        None,
        description="Secret with MLflow's credentials under the names of their variables, such as"
        " MLFLOW_TRACKING_PASSWORD.",
    )
    shm: Quantity | None = Field(
        None, description="Most memory in /dev/shm; as much as the pod may use when left out."
    )
    security: Literal["restricted"] | None = Field(
        None, description="`restricted`: what the Pod Security Standard of that name demands."
    )
    pod_template: dict[str, Any] = Field(
        default_factory=dict,
        description="Merged into the pods' template (metadata and spec), containers by their name; the"
        " trial's is `main`.",
    )
    grace: Seconds = Field(60.0, description="Time to save: from SIGTERM to SIGKILL.")
    keep: Seconds = Field(
        604800.0, description="How long an ended Job is kept: the cluster then removes it. At least 1h."
    )
    start_patience: Seconds = Field(
        600.0,
        description="How long a pod may fail to start for a reason that does not pass by itself, such as an"
        " image that does not exist, before its attempt is ended as invalid.",
    )
    in_place_restart: bool = Field(
        False, description="Let the cluster replace the pod of a one-node trial that was evicted."
    )
    logs: Literal["first", "all"] = Field(
        "first", description="Whose logs are copied while pods live: the first node's, or all."
    )
    slots: int | None = Field(
        None,
        ge=1,
        description="Trials in the cluster at once unless limits.concurrent says otherwise; 20, with a queue"
        " 500.",
    )
    root: Path | None = Field(
        None,
        description="Directory on this machine for launch files, code and copied logs; $AIRFLOWS_HOME when"
        " left out.",
    )
    patience: Seconds = Field(
        30.0, description="How long one request is repeated while the cluster is busy or silent."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_volume(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("pvc"), str):
            return {**given, "pvc": {"claim": given["pvc"]}}
        return given

    @field_validator("pod_template")
    @classmethod
    def _mergeable(cls, given: dict[str, Any]) -> dict[str, Any]:
        if words := unfit(given):
            raise ValueError(words)
        return given

    @model_validator(mode="after")
    def _consistent(self) -> KubernetesSettings:
        if self.code == "pvc" and (self.pvc is None or self.pvc.local is None):
            message = "code: pvc needs `pvc: {claim: …, local: …}`, where this machine sees the volume"
            raise ValueError(message)
        if self.keep < 3600:  # noqa: PLR2004
            message = "keep is at least 1h: how an attempt ended is read from its Job"
            raise ValueError(message)
        return self

    def place(self, accelerator_type: str) -> Equivalent:
        """Return what a pod of a type asks for: its own words where there are some, else the common ones."""
        own = self.accelerators.get(accelerator_type) or Equivalent()
        common = {name: getattr(self, name) for name in Place.model_fields}
        given = {name: value for name in Place.model_fields if (value := getattr(own, name)) is not None}
        return own.model_copy(update=common | given)

    @property
    def code_way(self) -> str:
        """How code gets to pods: `pvc`, `config_map` or `image`."""
        if self.code != "auto":
            return self.code
        return "pvc" if self.pvc is not None and self.pvc.local is not None else "config_map"
