"""What `backend: {type: local, ...}` takes."""

# No postponed annotations here: pydantic would compile each of them, at every start.

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from airflows.durations import parse_duration


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


class Equivalent(BaseModel):
    """What stands for an accelerator type of AI Runtime here."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    cpu: bool = Field(False, description="Run without GPUs, even where there are some.")
    gpus: int | None = Field(
        None, ge=1, description="GPUs that one node gets here; as many as the type has when left out."
    )


class LocalSettings(BaseModel):
    """Options of the local backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    type: Literal["local"] = Field("local", description="Always `local`.")
    root: Path | None = Field(
        None,
        description="Directory for launch directories, snapshots, checkpoints; $AIRFLOWS_HOME when left out.",
    )
    slots: int | None = Field(
        None,
        ge=1,
        description="Trials that run at once unless limits.concurrent says; GPUs, else CPUs when left out.",
    )
    gpus: int | list[str] | None = Field(
        None,
        description="How many GPUs may be used, or which ones as in CUDA_VISIBLE_DEVICES; all when left out.",
    )
    accelerators: dict[str, Equivalent] = Field(
        {}, description="What stands for an accelerator type here, by type."
    )
    grace: Annotated[float, BeforeValidator(_seconds)] = Field(
        30.0,
        ge=0,
        description="From SIGTERM to SIGKILL when a trial is ended: seconds, or a duration such as 30s.",
    )
    environment: Literal["current", "isolated"] = Field(
        "current",
        description="`current`: trials run with the Python that runs airflows; `isolated`: with a virtual "
        "environment of the train.yaml's dependencies, built once.",
    )
    inherit: list[str] = Field(
        # As a factory, `list` would be asked for its signature: a twentieth of a short command.
        [],
        description="Variables that trials get from the driver's environment besides PATH, HOME and LANG.",
    )
