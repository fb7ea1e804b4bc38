"""A backend as the places that trials go to: mostly one, itself; several where a sweep bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from airflows.backends.base import Backend
from airflows.train import TrainConfig


@dataclass(frozen=True, slots=True)
class Place:
    """One of the places that trials go to.

    Attributes:
        name: written with each attempt.
        backend: with handles as the ledger has them.
        own: the same without that, for what it offers besides.
        concurrent: most trials in flight there, None for what it has room for.
        compute: in place of entries of the train.yaml's `compute`.
    """

    name: str
    backend: Backend
    own: Backend
    concurrent: int | None = None
    compute: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class HasPlaces(Protocol):
    """A backend that is several in order."""

    @property
    def places(self) -> Sequence[Place]:
        """The places, at least two."""

    @property
    def after_s(self) -> float:
        """How long a trial waits in one place before it is moved on."""

    def room_at(self, place: Place, config: TrainConfig) -> int:
        """Return how many runs of a train.yaml go on at once in a place."""


def places_of(backend: Backend) -> Sequence[Place]:
    """Return the places that a backend is, mostly one: itself."""
    return backend.places if isinstance(backend, HasPlaces) else (Place(backend.name, backend, backend),)


def place_named(backend: Backend, name: str) -> Place:
    """Return the place of that name; the first where there is none, as after a move to another backend."""
    places = places_of(backend)
    return next((place for place in places if place.name == name), places[0])
