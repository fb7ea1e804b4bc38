"""What `backend: {type: databricks, ...}` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from airflows.durations import parse_duration


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


class DatabricksSettings(BaseModel):
    """Options of the Databricks backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["databricks"] = Field("databricks", description="Always `databricks`.")
    profile: str | None = Field(
        None,
        min_length=1,
        description="Profile of ~/.databrickscfg; else as the SDK finds it: DATABRICKS_CONFIG_PROFILE, "
        "DATABRICKS_HOST and its credentials, the DEFAULT profile.",
    )
    volume: str | None = Field(
        None,
        pattern=r"^/Volumes/[^/]+/[^/]+/[^/]+",
        description="Directory in a volume, /Volumes/CATALOG/SCHEMA/VOLUME/..., for the trials' checkpoints; "
        "without it, or checkpoint.dir, they are lost with the machine.",
    )
    root: Path | None = Field(
        None,
        description="Directory on this machine for launch files and code snapshots; $AIRFLOWS_HOME when left "
        "out.",
    )
    slots: int = Field(
        20, ge=1, description="Runs in flight at once unless limits.concurrent says otherwise."
    )
    retries: Literal["airflows", "native"] = Field(
        "airflows",
        description="`airflows`: failed attempts are tried again as everywhere; `native`: max_retries of the "
        "train.yaml is left to the service, whose attempts are one attempt of the trial.",
    )
    launch: Literal["own", "shared"] | None = Field(
        None,
        description="`own`: each run has a launch directory with AI Runtime's files, four or five uploads; "
        "`shared`: the trials of a sweep share one, and a trial is one upload. Left out: own for "
        "`airflows run`, shared for a sweep.",
    )
    patience: Annotated[float, BeforeValidator(_seconds)] = Field(
        60.0,
        ge=1,
        description="How long a request is repeated while the workspace is busy or silent: seconds, or a "
        "duration such as 2m.",
    )
