"""Methods that learn from what came before: what they need, what they are told, what they answer. Pure.

The sampler itself is Optuna's, in `airflows.search.sampler`, which is imported when the first one is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from airflows.axes import Overrides, Space
from airflows.errors import MissingExtraError
from airflows.search.coding import require_numbers

AdaptiveMethod = Literal["tpe", "gp", "cmaes", "nsga2"]
Direction = Literal["minimize", "maximize"]

# How many finished trials Optuna's samplers draw before they begin to learn.
STARTUP: Mapping[str, int] = {"tpe": 10, "gp": 10, "cmaes": 1, "nsga2": 50}
_PACKAGES: Mapping[str, Sequence[str]] = {
    "tpe": ("optuna",),
    "gp": ("optuna", "scipy", "torch"),
    "cmaes": ("optuna", "cmaes", "scipy"),
    "nsga2": ("optuna",),
}
_OF_EXTRA = frozenset({"optuna", "scipy", "cmaes"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What makes a sampler what it is.

    Attributes:
        method: which.
        seed: the sweep's; each proposal has its own, from this one and its number.
        directions: one for each objective.
    """

    method: AdaptiveMethod
    seed: int = 0
    directions: tuple[Direction, ...] = ("minimize",)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a point, all its replicates taken together.

    Attributes:
        state: `complete`; `stopped` early; `diverged`, so that its value is NaN or infinite; `failed`, which
            says nothing about the point.
        values: one for each objective, when complete.
        step: the last step of one that was stopped early, None when it logged nothing.
        score: its value there.
        violations: by constraint, by how much it is broken; 0 and less is kept.
    """

    state: Literal["complete", "stopped", "diverged", "failed"]
    values: tuple[float, ...] = ()
    step: int | None = None
    score: float | None = None
    violations: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Past:
    """A finished point of an earlier sweep."""

    overrides: Mapping[str, Any]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Notes:
    """What a sampler wants to find again when it is asked later: kept with the point, and given back.

    Attributes:
        trial: about the point.
        study: about all.
    """

    trial: Mapping[str, Any] = field(default_factory=dict)
    study: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The answer to "which point next?"."""

    overrides: Overrides
    notes: Notes


class Sampler(Protocol):
    """Chooses points one by one. What it proposes follows from what it was told, and nothing else.

    Points are numbered from 0 without gaps. A proposal counts as added.
    """

    def add(self, overrides: Mapping[str, Any], notes: Notes | None = None) -> Notes:
        """Tell of a point that was chosen otherwise, or is known from before; it runs until it is finished.

        Args:
            overrides: of the point.
            notes: those that came with it; None for a point that is new.
        """

    def finish(self, number: int, outcome: Outcome) -> None:
        """Tell what became of a point that runs."""

    def ask(self) -> Proposal:
        """Return the next point; it may be one that was there before."""


def open_sampler(
    space: Space, base: Mapping[str, Any], setting: Setting, past: Sequence[Past] = ()
) -> Sampler:
    """Return a sampler that knows nothing but the past of other sweeps.

    Raises:
        MissingExtraError: a package it needs is not installed.
    """
    require_packages(setting.method)
    # Slow to import, and an extra.
    made: Sampler = import_module("airflows.search.sampler").StudySampler(space, base, setting, past)
    return made


def require_packages(method: str) -> None:
    """Check that what a method needs is installed, without importing it.

    Raises:
        MissingExtraError: it is not; the hint says how to get it.
    """
    missing = [name for name in _PACKAGES[method] if find_spec(name) is None]
    if missing:
        wanted = ["'airflows[optuna]'"] if _OF_EXTRA & set(missing) else []
        wanted += ["torch"] if "torch" in missing else []
        verb = "is" if len(missing) == 1 else "are"
        message = f"search.method {method} needs {' and '.join(missing)}, which {verb} not installed."
        raise MissingExtraError(message, hint=f"Run: pip install {' '.join(wanted)}")


def check_space(space: Space, method: str) -> None:
    """Check that a method can choose from a space.

    Raises:
        SpecError: it cannot.
    """
    if method == "cmaes":
        require_numbers(space, method)
