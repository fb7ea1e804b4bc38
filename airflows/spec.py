"""The sweep.yaml as typed objects: every key, its default and what it is for. Pure."""

# No postponed annotations here: pydantic would compile each of them, at every start.

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from airflows.durations import PATTERN, parse_duration
from airflows.ids import canonical_json
from airflows.objective import Goal, Objective

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
Method = Literal["grid", "list", "random", "sobol", "tpe", "gp", "cmaes", "nsga2"]
StopMethod = Literal["asha", "hyperband", "median", "patience", "threshold", "nan"]
ADAPTIVE = frozenset({"tpe", "gp", "cmaes", "nsga2"})
DRAWN = frozenset({"random", "sobol"})
MOST_PACKED = 1024

_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_KEY_VALUES: dict[str, Any] = {"type": "object", "description": "Override keys and their values."}


def _positive_duration(value: object) -> float:
    seconds = parse_duration(value)
    if not seconds:
        message = f"{value!r} is no time at all. Leave the key out for no limit."
        raise ValueError(message)
    return seconds


def _failures(value: object) -> object:
    found = _PERCENTAGE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found and 0 < float(found[1]) <= 100:  # noqa: PLR2004 - per cent
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    message = f"{value!r} is no number of failed trials. Write a number from 1, or a percentage such as 10%."
    raise ValueError(message)


def _backend(value: object) -> object:
    if isinstance(value, str) and value.strip():
        return {"type": value}
    if isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"].strip():
        return value
    message = "A backend is a name, or a mapping with a type: {type: local, ...}."
    raise ValueError(message)


def _as_text(tags: object) -> object:
    if not isinstance(tags, dict):
        return tags
    plain = (int, float)
    return {k: canonical_json(v) if isinstance(v, plain) else v for k, v in tags.items()}


def distinct(values: list[Any]) -> list[Any]:
    """Return the values, each once."""
    first: dict[str, Any] = {}
    for value in values:
        first.setdefault(canonical_json(value), value)
    return list(first.values())


def _distinct(values: object) -> object:
    return distinct(values) if isinstance(values, list) else values


_DURATION_SCHEMA = WithJsonSchema({"type": "string", "pattern": PATTERN, "examples": ["90s", "12h", "1h30m"]})
Duration = Annotated[float, BeforeValidator(parse_duration), _DURATION_SCHEMA]
PositiveDuration = Annotated[float, BeforeValidator(_positive_duration), _DURATION_SCHEMA]
Failures = Annotated[
    Any,
    BeforeValidator(_failures),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"}]}
    ),
]
Rows = Annotated[list[dict[str, Any]], WithJsonSchema({"type": "array", "items": _KEY_VALUES})]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Search(_Part):
    """How the next point is chosen."""

    method: Method | None = Field(
        None,
        description="What chooses the points: grid (default for a finite space), list (default without a"
        " space), random, sobol, or an adaptive method.",
    )
    trials: int | None = Field(
        None, ge=1, description="Most points; random, sobol and adaptive methods need it."
    )
    seed: int = Field(
        0, ge=0, description="Makes drawn points what they are: the same seed, the same points."
    )
    warm_start: list[str] = Field(
        [],
        description="Earlier sweeps whose finished trials an adaptive method learns from.",
    )


class Replicates(_Part):
    """Every point is run once for each value; the runs of a point are ranked as one group."""

    key: str = Field(
        min_length=1, description="Override key that tells the replicates apart, such as a seed."
    )
    values: Annotated[list[Any], BeforeValidator(_distinct)] = Field(
        min_length=1, description="One value for each replicate."
    )


class Stop(_Part):
    """Early stopping: which running trials are not worth finishing."""

    method: StopMethod | None = Field(None, description="The rule.")
    metric: str | None = Field(None, description="MLflow metric it looks at; the objective's by default.")
    goal: Goal | None = Field(
        None, description="Which value of that metric is better, where no objective says so."
    )
    min_steps: int | None = Field(None, ge=1, description="No trial is stopped before this step.")
    max_steps: int | None = Field(None, ge=1, description="The step at which a trial is done.")
    reduction: float | None = Field(None, gt=1, description="Of so many trials one goes on at each rung.")
    resume: bool | None = Field(
        None, description="Trials wait at a rung, and the best go on from their checkpoints."
    )
    after_trials: int | None = Field(
        None, ge=1, description="Trials compared with before the first is stopped."
    )
    after_steps: int | None = Field(None, ge=1, description="Steps before a threshold counts.")
    steps: int | None = Field(None, ge=1, description="Steps without improvement before a trial is stopped.")
    min_delta: float | None = Field(None, ge=0, description="What counts as an improvement.")
    worse_than: float | None = Field(None, description="A trial whose metric is worse is stopped.")
    nan: bool = Field(True, description="Stop a trial whose metric is NaN.")


class Limits(_Part):
    """What may be spent, and when to give up."""

    concurrent: int | None = Field(
        None, ge=1, description="Trials in flight; the backend's slots by default."
    )
    trials: int | None = Field(None, ge=1, description="Most trials ever started, replicates counted.")
    wall_time: PositiveDuration | None = Field(None, description="Nothing new starts after this time.")
    accelerator_hours: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Nothing new starts once this many accelerator-hours are used.",
    )
    failed_trials: Failures | None = Field(
        None, description="So many failed trials, or such a percentage of all, end the sweep as failed."
    )
    identical_failures: int = Field(
        3,
        ge=0,
        description="So many first trials that fail alike, with none succeeded, stop the sweep; 0: never.",
    )
    on_limit: Literal["finish", "cancel"] = Field(
        "finish", description="What running trials do when wall_time or accelerator_hours is reached."
    )

    @property
    def wall_time_s(self) -> float | None:
        """`wall_time` in seconds."""
        return self.wall_time

    def failed_count(self, total: int | None) -> int | None:
        """Return how many failed trials are too many; None for no limit.

        Args:
            total: trials planned, for a percentage; unknown, a percentage has no effect.
        """
        if self.failed_trials is None or isinstance(self.failed_trials, int):
            return self.failed_trials
        share = float(self.failed_trials.strip().removesuffix("%")) / 100
        return None if total is None else max(1, math.ceil(share * total - 1e-9))


class Retry(_Part):
    """What is tried again after a failed attempt."""

    max: int | None = Field(
        None, ge=0, description="Retries after errors of the program; the train.yaml's max_retries, else 3."
    )
    max_without_progress: int = Field(
        3, ge=0, description="Retries in a row after failures of the place while the checkpoint stands still."
    )
    wait: Duration = Field(
        10.0,
        description="Wait before the first retry; doubled each time, at most 10m.",
        json_schema_extra={"default": "10s"},
    )
    on_out_of_memory: Annotated[dict[str, Any], WithJsonSchema(_KEY_VALUES)] | None = Field(
        None, description="Overrides with which a trial that ran out of memory is tried again."
    )

    @property
    def wait_s(self) -> float:
        """`wait` in seconds."""
        return self.wait


class Checkpoint(_Part):
    """Where trials keep their checkpoints and what counts as one."""

    dir: str | None = Field(
        None, min_length=1, description="Root of the checkpoint directories of the trials."
    )
    pattern: str | None = Field(
        None, min_length=1, description="Glob of complete checkpoints; the known forms by default."
    )


class Tracking(_Part):
    """Where metrics come from and results are shown."""

    uri: str | None = Field(
        None,
        min_length=1,
        description="MLflow tracking URI; `none` switches MLflow off. Default: MLFLOW_TRACKING_URI,"
        " else an embedded store.",
    )
    experiment: str | None = Field(
        None, min_length=1, description="MLflow experiment; the base's experiment_name by default."
    )
    tags: Annotated[
        dict[str, str],
        BeforeValidator(_as_text),
        WithJsonSchema({"type": "object", "additionalProperties": _SCALAR}),
    ] = Field({}, description="MLflow tags of the parent run and of every trial.")


_WHEN: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "description": "Active only where each of these keys has the value, or one of the values, given here.",
}
_RANGE: dict[str, Any] = {
    "min": {"type": "number", "description": "Lower bound, included."},
    "max": {"type": "number", "description": "Upper bound; included, where the steps meet it."},
}


def _domain_form(description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": {**properties, "when": _WHEN},
        "required": required,
        "additionalProperties": False,
    }


_LOG: dict[str, Any] = {"type": "boolean", "description": "Even in logarithm rather than in value."}
_DOMAIN: dict[str, Any] = {
    "anyOf": [
        {"type": "array", "minItems": 1, "description": "Each element is a value; of coupled keys, a list."},
        _domain_form(
            "Values one by one, with a condition.",
            ["values"],
            values={"type": "array", "minItems": 1, "description": "Each element is a value."},
        ),
        _domain_form(
            "min, min + step, ... up to max.",
            ["min", "max", "step"],
            **_RANGE,
            step={
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Distance of two values, in decimals.",
            },
        ),
        _domain_form(
            "So many values, evenly spaced.",
            ["min", "max", "count"],
            **_RANGE,
            count={"type": "integer", "minimum": 2, "description": "How many values, both bounds included."},
            log=_LOG,
        ),
        _domain_form(
            "Anything between two bounds: integers if both are, else floats.",
            ["min", "max"],
            **_RANGE,
            log=_LOG,
        ),
        {**_SCALAR, "description": "One fixed value."},
    ]
}
Domains = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": _DOMAIN})]


def _part(description: str) -> Any:
    # Validated with the whole, an empty part costs nothing; made by its class it would be compiled by itself.
    return Field({}, validate_default=True, description=description)


class SweepSpec(_Part):
    """A sweep.yaml: which train.yaml, which keys take which values, what is best, where it runs."""

    name: str = Field(pattern=NAME_PATTERN, description="Name of the sweep: letters, digits, `_` and `-`.")
    base: Annotated[
        Any,
        WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]}),
    ] = Field(description="The train.yaml: a path relative to this file, or the mapping itself.")
    overrides: Annotated[
        Any,
        WithJsonSchema({"anyOf": [_KEY_VALUES, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field(None, description="Applied to every trial first: a mapping, or a list of KEY=VALUE.")
    space: Domains = Field({}, description="Override key to the values it takes.")
    include: Rows = Field([], description="Further points, each a mapping of override keys.")
    exclude: Rows = Field([], description="Points that have all values of a row are dropped.")
    search: Search = _part("How points are chosen from the space.")
    replicates: Replicates | None = Field(None, description="Runs of each point that differ in one key.")
    objective: Objective | None = Field(None, description="What best means.")
    objectives: list[Objective] = Field(
        [], description="Two or more objectives, for a Pareto front instead of a winner."
    )
    stop: Stop = _part("Early stopping.")
    limits: Limits = _part("What may be spent, and when to give up.")
    retry: Retry = _part("What is tried again after a failed attempt.")
    checkpoint: Checkpoint = _part("Where checkpoints are kept.")
    backend: Annotated[
        dict[str, Any],
        BeforeValidator(_backend),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
                ]
            }
        ),
    ] = Field(
        default_factory=lambda: {"type": "local"},
        description="Where trials run: a name, or a mapping with type and the backend's own options.",
    )
    tracking: Tracking = _part("MLflow: where and under which name.")
    strict: bool = Field(False, description="What is a warning about keys otherwise is an error.")
    pack: int = Field(
        1,
        ge=1,
        le=MOST_PACKED,
        description="So many trials run side by side on what one would have, such as a GPU or a node.",
    )

    @property
    def all_objectives(self) -> list[Objective]:
        """The one objective, or the several; empty for none."""
        return [self.objective] if self.objective is not None else self.objectives

    @property
    def method(self) -> Method:
        """`search.method`, or what it is by default."""
        return self.search.method or ("grid" if self.space else "list")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of sweep.yaml, for editors."""
    from airflows.placeschema import BURST  # noqa: PLC0415 - for those alone who ask for the schema

    made: dict[str, Any] = _readable(SweepSpec.model_json_schema())
    _, mapping = made["properties"]["backend"]["anyOf"]
    mapping |= {"if": {"properties": {"type": {"const": "burst"}}}, "then": BURST}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sweep.yaml",
        **made,
        "anyOf": [{"required": ["space"]}, {"required": ["include"]}],
    }


def _readable(node: Any) -> Any:
    """Return a schema without what says nothing to people: titles made of names, nulls for absence."""
    if isinstance(node, list):
        return [_readable(child) for child in node]
    if not isinstance(node, dict):
        return node
    made = {name: _readable(child) for name, child in node.items()}
    if isinstance(made.get("title"), str):
        del made["title"]
    if made.get("default", ...) is None:
        del made["default"]
    branches = made.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches:
        left = [branch for branch in branches if branch != {"type": "null"}]
        del made["anyOf"]
        made = ({"anyOf": left} if len(left) > 1 else left[0]) | made
    return made
