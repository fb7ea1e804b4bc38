"""What `backend: {type: burst, ...}` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from airflows.durations import parse_duration

_EXAMPLE = "{type: burst, first: {type: slurm, concurrent: 8}, then: databricks, after: 10m}"


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _mapping(value: object) -> object:
    if not isinstance(value, str | dict | PlaceSettings):
        message = "Name a backend, or give a mapping with its `type`"
        raise ValueError(message)  # noqa: TRY004 - pydantic takes no other
    return {"type": value} if isinstance(value, str) else value


def _several(value: object) -> object:
    return [_mapping(one) for one in value] if isinstance(value, list) else [_mapping(value)]


class PlaceCompute(BaseModel):
    """What a place has in place of entries of the train.yaml's `compute`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accelerator_type: str | None = Field(None, description="Accelerator type there.")
    num_accelerators: int | None = Field(None, ge=1, description="Accelerators over all nodes there.")
    pool_id: str | None = Field(None, description="Id of reserved capacity there.")
    priority_class: str | None = Field(None, description="Priority within the reserved capacity.")


class PlaceSettings(BaseModel):
    """A place: a backend's own options, and these."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = Field(min_length=1, description="The backend.")
    name: str | None = Field(
        None,
        pattern=r"^[a-z][a-z0-9_-]{0,39}$",
        description="What the place is called; the backend's name when left out.",
    )
    concurrent: int | None = Field(
        None, ge=1, description="Most trials in flight there; what the backend has room for when left out."
    )
    compute: PlaceCompute = Field(
        PlaceCompute(), description="Entries of the train.yaml's `compute` that differ there."
    )

    @property
    def options(self) -> dict[str, Any]:
        """The backend's own settings."""
        return {"type": self.type, **(self.model_extra or {})}


class BurstSettings(BaseModel):
    """Options of bursting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["burst"] = Field("burst", description="Always `burst`.")
    first: Annotated[PlaceSettings, BeforeValidator(_mapping)] = Field(
        description="Where trials go while there is room: a backend's name, or a mapping with its type, its"
        " own options, and `name`, `concurrent`, `compute`.",
    )
    then: Annotated[list[PlaceSettings], BeforeValidator(_several), Field(min_length=1)] = Field(
        description="Where they go otherwise: one such place, or a list of them in order.",
    )
    after: Annotated[float, BeforeValidator(_seconds), Field(ge=0)] = Field(
        600.0,
        description="How long a trial waits in the queue of one place before it is moved to a later one that"
        " has room: seconds, or a duration such as 10m.",
    )

    @model_validator(mode="before")
    @classmethod
    def _names_places(cls, given: Any) -> Any:
        if isinstance(given, dict) and not (given.get("first") and given.get("then")):
            message = f"Say where trials go `first`, and where `then`: {_EXAMPLE}"
            raise ValueError(message)
        return given

    def roots(self, home: Path) -> dict[str, Path]:
        """Return where each place keeps launch files."""
        kept = {one.name or one.type: one.options.get("root") or home for _, one in self.in_order}
        return {name: Path(root).expanduser().absolute() for name, root in kept.items()}

    @property
    def in_order(self) -> list[tuple[str, PlaceSettings]]:
        """Where each place stands in the file, and what it says."""
        rest = [("then" if len(self.then) == 1 else f"then.{at}", one) for at, one in enumerate(self.then)]
        return [("first", self.first), *rest]
