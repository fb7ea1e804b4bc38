"""Where trials go when there are several places, and when they are moved on from where they wait. Pure.

A trial goes to the first place that has room. From where it waits in a queue for too long it is taken out,
seen gone, and offered to the places behind that one; so is one that a place had no room for after all. The
silence of a place decides nothing: what is there stays there, and others wait for it for as long as they
would wait in its queue. Nothing is taken out of a queue for a place that has let nothing through of late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from airflows.backends.base import Phase
from airflows.ledger.records import Wish
from airflows.planning import PASSED_ON, Plan, View
from airflows.times import human_duration
from airflows.trial import Event, EventKind, Reason, State, Trial

LEAVES = frozenset(
    {EventKind.SUCCEEDED, EventKind.FAILED, EventKind.RETRIED, EventKind.GONE, EventKind.UNSENT}
)
"""What happens to a trial that then takes no room any more."""


class Rooms:
    """The room that is left in each place, for what is decided now.

    Args:
        view: everything known.
        made: what was decided before.
    """

    def __init__(self, view: View, made: Plan) -> None:
        rules = view.rules
        event_of = {trial.number: event.kind for trial, event in made.events}
        held = Counter(trial.backend for trial in view.in_flight if event_of.get(trial.number) not in LEAVES)
        self._names = [place.name for place in rules.places]
        self._room = {place.name: place.concurrent - held[place.name] for place in rules.places}
        self._silent = set(view.silent)
        self._given_up = {name for name, since in view.silent.items() if view.now - since >= rules.after_s}
        self._refusing = {name: row.may_ask_at(rules.after_s) for name, row in view.refused.items()}
        self._now = view.now
        stays = {EventKind.STARTED, EventKind.SUCCEEDED}
        self._leaving = [t for t in view.in_flight if _is_moving(t) and event_of.get(t.number) not in stays]

    def take(self, trial: Trial) -> str:
        """Return the place that a trial goes to, which has room for one less; empty while it waits."""
        if trial.reason is not Reason.MOVED:
            self._keep_for_leaving()
        return self._take(trial)

    def _keep_for_leaving(self) -> None:
        """Keep room for what is on its way to another place; those that have left already come before it."""
        leaving, self._leaving = self._leaving, []
        for trial in leaving:
            self._take(trial)

    def _take(self, trial: Trial) -> str:
        for name in self._order_for(trial):
            if self._room[name] <= 0:
                continue
            if name not in self._silent:
                self._room[name] -= 1
                return name
            if name not in self._given_up:
                return ""
        return ""

    def take_behind(self, place: str) -> str:
        """Return the next place behind one that has room, which has room for one less; empty for none."""
        self._keep_for_leaving()
        if place not in self._room:
            return ""
        for name in self._names[self._names.index(place) + 1 :]:
            may_ask_at = self._refusing.get(name, 0.0)
            if self._room[name] <= 0 or name in self._silent or self._now < may_ask_at:
                continue
            # One trial is enough to see whether it lets them through again.
            self._room[name] = 0 if name in self._refusing else self._room[name] - 1
            return name
        return ""

    def _order_for(self, trial: Trial) -> Sequence[str]:
        if trial.reason not in PASSED_ON or trial.backend not in self._room:
            return self._names
        behind = self._names.index(trial.backend) + 1
        return [*self._names[behind:], *self._names[:behind]]


def in_order_of_placing(ready: Sequence[Trial]) -> Sequence[Trial]:
    """Return trials as they are placed: those first for which room was kept."""
    return sorted(ready, key=lambda trial: trial.reason is not Reason.MOVED)


def move_on(view: View, made: Plan, rooms: Rooms) -> None:
    """Take trials out of a queue in which they have waited for too long, if a later place has room."""
    if view.wish is not Wish.RUN or view.halted or made.halt:
        return
    moved = {trial.number for trial, _ in made.events}
    queued = [trial for trial in view.in_flight if trial.state is State.QUEUED and trial.number not in moved]
    for trial in sorted(queued, key=lambda trial: (trial.submitted_at or view.now, trial.number)):
        waited_s = view.now - (trial.submitted_at or view.now)
        if waited_s < view.rules.after_s or not _is_seen_waiting(view, trial):
            continue
        target = rooms.take_behind(trial.backend)
        if target:
            words = f"It waited {human_duration(waited_s)} on {trial.backend}, and {target} has room."
            made.events.append((trial, Event(EventKind.STOP_ASKED, view.now, Reason.MOVED, words)))


def _is_moving(trial: Trial) -> bool:
    return trial.state is State.STOPPING and trial.reason is Reason.MOVED


def _is_seen_waiting(view: View, trial: Trial) -> bool:
    sighting = view.sightings.get(trial.number)
    seen = None if sighting is None else sighting.observation
    return seen is not None and seen.phase is Phase.QUEUED
