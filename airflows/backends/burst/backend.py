"""Several backends as one: what is submitted says which of them it is for, and each handle where it is from.

Where trials go, and when they are moved, is decided by `airflows.placing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflows.backends.base import Backend, Capabilities, Job, Observation, Reach
from airflows.backends.burst.place import PlaceBackend
from airflows.backends.burst.settings import BurstSettings, PlaceSettings
from airflows.backends.places import Place
from airflows.backends.registry import open_backend
from airflows.errors import BackendUnavailableError, SpecError, SubmitAmbiguousError, SubmitError
from airflows.ids import Token
from airflows.train import TrainConfig, decode
from airflows.trial import Handle


class BurstBackend:
    """Several places that trials go to.

    Args:
        settings: as in sweep.yaml.
        home: `$AIRFLOWS_HOME`.
        open_one: opens a backend from its settings.

    Raises:
        SpecError: a setting of a place is wrong, or two places have one name.
    """

    name = "burst"
    Settings = BurstSettings

    def __init__(
        self,
        settings: BurstSettings,
        home: Path,
        *,
        open_one: Callable[[Mapping[str, Any], Path], Backend] = open_backend,
    ) -> None:
        self.after_s = settings.after
        self._home = home
        self._open_one = open_one
        self._views: dict[str, PlaceBackend] = {}
        self.places = tuple(self._place(where, given) for where, given in settings.in_order)
        named = Counter(place.name for place in self.places)
        for name, count in named.items():
            if count > 1:
                message = f"{count} places are called {name}."
                raise SpecError(message, field="backend", hint="Give all but one of them a `name`.")

    def _place(self, where: str, given: PlaceSettings) -> Place:
        field = f"backend.{where}"
        if given.type == self.name:
            message = "a place cannot be of several places itself."
            raise SpecError(message, field=field, hint="List them all in order: `then: [{...}, {...}]`.")
        try:
            own = self._open_one(given.options, self._home)
        except SpecError as exc:
            exc.field = field if exc.field in {None, "backend"} else f"{field}.{_below_backend(exc.field)}"
            raise
        if own.capabilities.retries_itself:
            message = "a place cannot retry by itself: a failed trial may go on in another one."
            raise SpecError(message, field=f"{field}.retries", hint="Leave `retries: native` out.")
        name = given.name or own.name
        view = self._views[name] = PlaceBackend(name, own)
        return Place(name, view, own, given.concurrent, given.compute.model_dump(exclude_none=True))

    # What it is

    @property
    def root(self) -> Path:
        """The root of the first place."""
        return self.places[0].own.root

    @property
    def capabilities(self) -> Capabilities:
        """What holds for all places; the engine asks each where they differ."""
        each = [place.own.capabilities for place in self.places]
        return Capabilities(
            # Submitting again is safe only in the same place, and another might be next.
            idempotent_submit=False,
            max_batch=min(one.max_batch for one in each),
            queues_itself=False,
            visibility_lag_s=max(one.visibility_lag_s for one in each),
            makes_mlflow_run=False,
            slots=sum(one.slots for one in each),
            shares_host=any(one.shares_host for one in each),
            uploads=all(one.uploads for one in each),
        )

    def reach(self) -> Reach:
        """Say whether all places can be used now; never raises."""
        notes: list[str] = []
        for place in self.places:
            reach = place.own.reach()
            if not reach.available:
                return Reach(False, f"{place.name}: {reach.why_not}")
            notes += [f"{place.name}: {note}" for note in reach.notes]
        return Reach(True, "", tuple(notes))

    def check(self, config: TrainConfig, base_dir: Path) -> Sequence[str]:
        """Return what people should know before runs of a train.yaml start in each place.

        Raises:
            SpecError: in one of them such a run can never start.
        """
        notes: list[str] = []
        for place in self.places:
            try:
                found = place.own.check(_config_at(place, config), base_dir)
            except SpecError as exc:
                exc.message = f"{place.name}: {exc.message}"
                raise
            except BackendUnavailableError as exc:
                found = [str(exc)]
            notes += [f"{place.name}: {note}" for note in found]
        return notes

    def room_for(self, config: TrainConfig) -> int:
        """Return how many runs of a train.yaml go on at once in all places."""
        return sum(self.room_at(place, config) for place in self.places)

    def room_at(self, place: Place, config: TrainConfig) -> int:
        """Return how many runs of a train.yaml go on at once in a place."""
        return place.concurrent or place.own.room_for(_config_at(place, config))

    # Runs

    def submit(self, jobs: Sequence[Job]) -> Sequence[Handle | SubmitError]:
        """Start each job in its place, in the first when it names none; answer in their order."""
        answers: dict[Token, Handle | SubmitError] = {}
        for name in dict.fromkeys(job.place for job in jobs):
            own = [job for job in jobs if job.place == name]
            try:
                answered = self._views[name or self.places[0].name].submit(own)
            except BackendUnavailableError as exc:
                answered = [SubmitAmbiguousError(str(exc))] * len(own)
            answers |= {job.token: answer for job, answer in zip(own, answered, strict=True)}
        return [answers[job.token] for job in jobs]

    def find(self, tokens: Sequence[Token]) -> Mapping[Token, Handle]:
        """Return the handles of those tokens that any place knows."""
        found: dict[Token, Handle] = {}
        for view in self._views.values():
            found |= view.find(tokens)
        return found

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, Observation]:
        """Observe the runs."""
        seen: dict[Handle, Observation] = {}
        for view, own in self._by_place(handles):
            seen |= view.poll(own)
        return seen

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Ask that the runs end."""
        for view, own in self._by_place(handles):
            view.cancel(own)

    def logs(self, handle: Handle, *, node: int, follow: bool, lines: int | None = None) -> Iterator[str]:
        """Yield the log of one node."""
        for view, _ in self._by_place([handle]):
            return view.logs(handle, node=node, follow=follow, lines=lines)
        return iter(())

    def wait(self, timeout_s: float) -> None:
        """Return when something may have changed in the place that tells soonest, or after `timeout_s`."""
        here = (place for place in self.places if place.own.capabilities.shares_host)
        next(here, self.places[0]).own.wait(timeout_s)

    def _by_place(self, handles: Sequence[Handle]) -> Iterator[tuple[PlaceBackend, list[Handle]]]:
        for view in self._views.values():
            if own := [handle for handle in handles if view.has(handle)]:
                yield view, own


def _config_at(place: Place, config: TrainConfig) -> TrainConfig:
    """Return a train.yaml as it is in a place.

    Raises:
        SpecError: it is none with the place's `compute`.
    """
    if not place.compute:
        return config
    tree = config.model_dump(exclude_none=True)
    return decode({**tree, "compute": {**tree["compute"], **place.compute}})


def _below_backend(field: str) -> str:
    return field.removeprefix("backend.")
