"""What "best" means: the `objective` of a sweep.yaml. Pure."""

# No postponed annotations here: pydantic would compile each of them, at every start.

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from airflows.keys import nearest

GOALS: dict[str, Literal["minimize", "maximize"]] = {
    **dict.fromkeys(("minimize", "minimise", "min"), "minimize"),
    **dict.fromkeys(("maximize", "maximise", "max"), "maximize"),
}
OPERATORS = ("<=", ">=", "==", "!=", "<", ">")
_CONSTRAINT = re.compile(
    r"\s*(?P<metric>[^<>=!]*[^<>=!\s])\s*(?P<op><=|>=|==|!=|<|>)\s*(?P<bound>[^\s<>=!]+)\s*"
)
_COUNTED = {"mean_of_last": 1, "at_step": 0}
_TAKES = "Write last, best, {mean_of_last: n} or {at_step: n}."


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a metric, such as `latency_ms <= 20`; a trial that breaks it never wins."""

    metric: str
    op: str
    bound: float

    def __str__(self) -> str:
        return f"{self.metric} {self.op} {self.bound:g}"


def parse_constraint(text: object) -> Constraint:
    """Return the constraint of `METRIC OP NUMBER`.

    Raises:
        ValueError: the text has another form.
    """
    if isinstance(text, Constraint):
        return text
    found = _CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    bound = _number(found["bound"]) if found else None
    if found is None or bound is None:
        message = f"{text!r} is not a constraint. Write a metric, one of {' '.join(OPERATORS)}, and a number."
        raise ValueError(message)
    return Constraint(found["metric"], found["op"], bound)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _goal(value: object) -> object:
    if isinstance(value, str) and value in GOALS:
        return GOALS[value]
    close = nearest(value, GOALS) if isinstance(value, str) else None
    meant = f" Did you mean {close}?" if close else ""
    message = f"{value!r} is no goal: write minimize (minimise, min) or maximize (maximise, max).{meant}"
    raise ValueError(message)


def _take(value: object) -> object:
    if isinstance(value, str) and value in {"last", "best"}:
        return value
    if isinstance(value, dict) and len(value) == 1:
        (kind, n), *_ = value.items()
        if kind in _COUNTED and isinstance(n, int) and not isinstance(n, bool) and n >= _COUNTED[kind]:
            return value
    message = f"{value!r} is not a way to take a value. {_TAKES}"
    raise ValueError(message)


Goal = Annotated[
    Literal["minimize", "maximize"], BeforeValidator(_goal), WithJsonSchema({"enum": list(GOALS)})
]
Take = Annotated[
    Any,
    BeforeValidator(_take),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["last", "best"]},
                *(
                    {
                        "type": "object",
                        "properties": {name: {"type": "integer", "minimum": least}},
                        "required": [name],
                        "additionalProperties": False,
                    }
                    for name, least in _COUNTED.items()
                ),
            ]
        }
    ),
]
_Constraint = Annotated[
    Any,
    BeforeValidator(parse_constraint),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": ["latency_ms <= 20"]}),
]


class Objective(BaseModel):
    """The metric that decides, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    metric: str = Field(min_length=1, description="Key of the MLflow metric that decides.")
    goal: Goal = Field(description="minimize or maximize; there is no default.")
    take: Take = Field(
        "last",
        description="Which of the logged values counts: last, best, {mean_of_last: n} or {at_step: n}.",
    )
    constraints: list[_Constraint] = Field(
        [],
        description="Bounds such as `latency_ms <= 20`; a trial that breaks one never wins.",
    )
    across_replicates: Literal["mean", "median", "worst"] = Field(
        "mean", description="How the values of a group of replicates become one."
    )
    min_replicates: int | None = Field(
        None, ge=1, description="Replicates that must count for a group to be ranked; all by default."
    )


def metrics_of(objectives: Sequence[Objective]) -> list[str]:
    """Return the metrics that decide or that a constraint names, each once."""
    names = [o.metric for o in objectives] + [c.metric for o in objectives for c in o.constraints]
    return list(dict.fromkeys(names))
