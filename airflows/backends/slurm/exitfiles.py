"""The exit files of a few open runs, looked at between two looks at the queue: no question to Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflows.backends.base import Observation, Phase
from airflows.backends.slurm import remains
from airflows.backends.slurm.batches import Batches, Element, Entry
from airflows.trial import Handle

FEW = 200
"""Of more runs the files are not looked at: the next look at the queue comes soon enough."""
_EVERY_S, _SHARE, _COST = 0.2, 0.05, 10.0


@dataclass(slots=True)
class ExitFiles:
    """Looks for exit files: seldom where nothing has changed for long, or where the disk is slow.

    Attributes:
        batches: on the shared disk.
        clock: seconds since the epoch.
    """

    batches: Batches
    clock: Callable[[], float]
    _open: dict[Handle, Entry] = field(default_factory=dict)
    _told: set[Handle] = field(default_factory=set)
    _took_s: float = 0.0

    def follow(self, seen: Mapping[Handle, Observation]) -> None:
        """Look from now on for the files of those runs that have not ended."""
        handles = [handle for handle, one in seen.items() if one.phase is not Phase.ENDED]
        entries = {h: self.batches.entry(Element.of(h)) for h in handles} if len(handles) <= FEW else {}
        self._open = {handle: entry for handle, entry in entries.items() if entry is not None}
        self._told &= self._open.keys()

    def every_s(self, since_change_s: float) -> float:
        """Return the seconds between two looks."""
        return max(_EVERY_S, _SHARE * since_change_s, _COST * self._took_s)

    def wait(self, timeout_s: float, pause: Callable[[float], None], changed_at: float) -> None:
        """Return when there is a file that nobody has been told of, or after `timeout_s` seconds."""
        left_s = timeout_s
        while self._open and (step := self.every_s(self.clock() - changed_at)) < left_s:
            pause(step)
            left_s -= step
            if self._is_news():
                return
        pause(left_s)

    def _is_news(self) -> bool:
        began = self.clock()
        directories = [entry.launch_dir for handle, entry in self._open.items() if handle not in self._told]
        found = any((directory / "exit.json").exists() for directory in directories)
        self._took_s = self.clock() - began
        return found

    def news(self) -> tuple[dict[Handle, Observation], bool]:
        """Return the runs that have ended well, and whether others have ended otherwise.

        Whatever Slurm will say of a run that ended well, nothing else can come of it. Of the others it has
        the last word.
        """
        seen: dict[Handle, Observation] = {}
        before = len(self._told)
        for handle, entry in self._open.items():
            left = {} if handle in self._told else remains.read_exit(entry.launch_dir)
            if remains.is_clean(left):
                seen[handle] = remains.ended(None, left, None)
            elif left:
                self._told.add(handle)
        return seen, len(self._told) > before
