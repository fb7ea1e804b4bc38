"""What the backend says of the trials in flight, each of several places asked for its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from airflows.backends.base import Backend
from airflows.backends.places import HasPlaces, places_of
from airflows.engine.lookout import Lookout
from airflows.engine.roster import Roster
from airflows.engine.submission import Submission
from airflows.planner import Sighting
from airflows.trial import State, Trial


class Lookouts:
    """Asks the places of one sweep, one after the other; what one does not say decides nothing of others."""

    def __init__(
        self,
        sweep: str,
        backend: Backend,
        submission: Submission,
        roster: Roster,
        clock: Callable[[], float],
        latest_step: Callable[[Trial], int],
    ) -> None:
        self._by_place = {
            place.name: Lookout(sweep, place.backend, submission, roster, clock, latest_step)
            for place in places_of(backend)
        }
        self._submission = submission
        self._first = next(iter(self._by_place.values()))
        self._after_s = backend.after_s if isinstance(backend, HasPlaces) else 0.0

    @property
    def note(self) -> str:
        """What is being waited for, empty when all is well."""
        return " ".join(dict.fromkeys(each.note for each in self._by_place.values() if each.note))

    @property
    def silent(self) -> Mapping[str, float]:
        """Since when places do not answer, by name."""
        since = {name: each.silent_since for name, each in self._by_place.items()}
        return {name: at for name, at in since.items() if at is not None}

    def look(
        self, in_flight: Sequence[Trial], now: float, must_go: Callable[[Trial], bool]
    ) -> Mapping[int, Sighting]:
        """Return what is known of trials by number; see `Lookout`."""
        if len(self._by_place) == 1:
            return self._first.look(in_flight, now, must_go)
        sightings: dict[int, Sighting] = {}
        held = {id(lookout): list(trials) for lookout, trials in self._divided(in_flight)}
        is_wanted = any(
            t.state is State.QUEUED and now - (t.submitted_at or now) >= self._after_s for t in in_flight
        )
        for name, lookout in self._by_place.items():
            if unreached := self._submission.take_unreached(name):
                lookout.was_unreached(*unreached)
            own = held.get(id(lookout), [])
            sightings |= lookout.look(own, now, must_go)
            # Before anything is sent there, or taken out of a queue for it: that cannot be undone.
            if not own:
                lookout.see_whether_it_answers(now, is_wanted=is_wanted)
        return sightings

    def cancel(self, in_flight: Iterable[Trial], now: float) -> None:
        """Deliver cancels; see `Lookout`."""
        for lookout, trials in self._divided(in_flight):
            lookout.cancel(trials, now)

    def keep_from_hosts(self, in_flight: Iterable[Trial], now: float) -> None:
        """Tell places of hosts that have turned out bad; see `Lookout`."""
        for lookout, trials in self._divided(in_flight):
            lookout.keep_from_hosts(trials, now)

    def _divided(self, trials: Iterable[Trial]) -> Iterable[tuple[Lookout, Iterable[Trial]]]:
        if len(self._by_place) == 1:
            return [(self._first, trials)]
        divided: defaultdict[str, list[Trial]] = defaultdict(list)
        for trial in trials:
            divided[trial.backend].append(trial)
        return [(self._by_place[name], own) for name, own in divided.items() if name in self._by_place]
