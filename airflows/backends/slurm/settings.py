"""What `backend: {type: slurm, ...}` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from airflows.durations import parse_duration


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _one_line(text: str) -> str:
    if not text.isprintable() or '"' in text or "\\" in text:
        message = "a value of a directive is one line without double quotes and backslashes"
        raise ValueError(message)
    return text


def _directive(text: str) -> str:
    if not text.startswith("-"):
        message = f"{text!r} is no option of sbatch; write it as after #SBATCH, such as --exclusive"
        raise ValueError(message)
    if not text.isprintable():
        message = "a directive is one line"
        raise ValueError(message)
    return text


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
Word = Annotated[str, AfterValidator(_one_line)]
Directive = Annotated[str, AfterValidator(_directive)]


class Place(BaseModel):
    """What a job asks for; for an accelerator type it replaces what is asked for otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: Word | None = Field(None, description="--partition, one name or several with commas.")
    account: Word | None = Field(None, description="--account.")
    qos: Word | None = Field(None, description="--qos.")
    constraint: Word | None = Field(None, description="--constraint, such as `a100&nvlink`.")
    reservation: Word | None = Field(None, description="--reservation.")
    cpus: int | None = Field(None, ge=1, description="CPUs of one node (--cpus-per-task).")
    memory: Word | None = Field(None, description="Memory of one node (--mem), such as 64G; 0 for all.")
    time: Seconds | None = Field(
        None, description="--time where the train.yaml has no timeout_minutes: a duration such as 12h."
    )
    gpu_style: Literal["gres", "gpus-per-node", "none"] | None = Field(
        None, description="How GPUs are asked for: --gres (default), --gpus-per-node, or not at all."
    )
    gpu_type: Word | None = Field(None, description="Type in --gres=gpu:TYPE:N, as the site spells it.")
    extra: list[Directive] | None = Field(
        None, description="Further directives, handed through as they are, such as --exclusive."
    )


class Equivalent(Place):
    """What stands for an accelerator type of AI Runtime on this cluster."""

    cpu: bool = Field(False, description="Run without GPUs.")
    gpus: int | None = Field(
        None, ge=1, description="GPUs that one node gets; as many as the type has when left out."
    )


class SlurmSettings(Place):
    """Options of the Slurm backend."""

    type: Literal["slurm"] = Field("slurm", description="Always `slurm`.")
    root: Path | None = Field(
        None,
        description="Directory on a disk that all nodes share, for launch directories, logs, snapshots and"
        " checkpoints; $AIRFLOWS_HOME when left out.",
    )
    accelerators: dict[str, Equivalent] = Field(
        default_factory=dict, description="What stands for an accelerator type here, by type."
    )
    setup: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description="Shell lines that run on the node first, such as `module load cuda` or `source`.",
    )
    container: Literal["pyxis", "apptainer"] | None = Field(
        None, description="What runs environment.docker_image; refused when left out."
    )
    container_mounts: list[Word] = Field(
        default_factory=list,
        description="SOURCE:TARGET mounts of the container; the root is always mounted.",
    )
    grace: Seconds = Field(
        30.0,
        description="Time to save: from SIGTERM to SIGKILL when a trial is ended, and how long before its"
        " time limit it is asked to end.",
    )
    environment: Literal["current", "isolated"] = Field(
        "current",
        description="`current`: trials run with the Python that runs airflows, which the nodes must see;"
        " `isolated`: with a virtual environment below the root, built once.",
    )
    inherit: list[str] = Field(
        default_factory=list,
        description="Variables that trials get from the driver's environment besides PATH, HOME and LANG.",
    )
    queue: int | None = Field(
        None, ge=1, description="Most trials of a sweep in Slurm's queue; what the site allows when left out."
    )
    patience: Seconds = Field(
        30.0, description="How long one Slurm command may take before it counts as unanswered."
    )

    def place(self, accelerator_type: str) -> Equivalent:
        """Return what a job of a type asks for: its own words where there are some, else the common ones."""
        own = self.accelerators.get(accelerator_type) or Equivalent()
        common = {name: getattr(self, name) for name in Place.model_fields}
        given = {name: value for name in Place.model_fields if (value := getattr(own, name)) is not None}
        return own.model_copy(update=common | given)
