"""Finding what was submitted when nobody knows whether the answer came: by the name of the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflows.backends.slurm import remains
from airflows.backends.slurm.batches import Batches, Entry
from airflows.backends.slurm.commands import Commands
from airflows.backends.slurm.queries import MANY_IDS, accounts, queue
from airflows.ids import Token
from airflows.trial import Handle


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds arrays.

    Attributes:
        commands: of Slurm.
        batches: on the shared disk.
        claims: directory of the claims.
        has_accounts: whether sacct can answer here.
        clock: seconds since the epoch.
    """

    commands: Commands
    batches: Batches
    claims: Path
    has_accounts: Callable[[], bool]
    clock: Callable[[], float]

    def find(self, tokens: Sequence[Token]) -> dict[Token, Handle]:
        """Return the handles of the attempts that were submitted.

        Raises:
            BackendUnavailableError: squeue did not answer.
        """
        found: dict[Token, Handle] = {}
        unanswered: dict[str, dict[Token, Entry]] = {}
        for batch, entries in self.batches.holding(tokens):
            job = self.batches.job_of(batch)
            if job is None:
                unanswered[batch] = entries
            else:
                found |= _handles(batch, job[0], entries)
        open_ones = {b: i for b, i in unanswered.items() if any(token not in found for token in i)}
        if open_ones:
            for batch, array in self._arrays_named(list(open_ones)).items():
                self.batches.accepted(batch, array, self.clock())
                found = _handles(batch, array, open_ones[batch]) | found
            for batch, entries in open_ones.items():
                found = self._started(batch, entries) | found
        return found

    def _arrays_named(self, names: Sequence[str]) -> dict[str, int]:
        """Return the array of each job name; of several the oldest, and the others are cancelled."""
        listed: dict[str, dict[int, float]] = {}
        for start in range(0, len(names), MANY_IDS):
            chunk = ",".join(names[start : start + MANY_IDS])
            for task, row in queue(self.commands, "-t", "all", "--me", "-n", chunk).items():
                listed.setdefault(row.name, {})[task.array] = row.submitted or 0.0
        left = [name for name in names if name not in listed]
        if left and self.has_accounts():
            for task, rows in accounts(self.commands, "--name", ",".join(left)).items():
                for row in rows:
                    listed.setdefault(row.name, {})[task.array] = row.submitted or 0.0
        for arrays in listed.values():
            for array in sorted(arrays, key=lambda one: (arrays[one], one))[1:]:
                self.commands.ask("scancel", str(array))
        return {name: min(arrays, key=lambda one: (arrays[one], one)) for name, arrays in listed.items()}

    def _started(self, batch: str, entries: Mapping[Token, Entry]) -> dict[Token, Handle]:
        """Return the handles of attempts that started once, should Slurm have forgotten them."""
        made: dict[Token, Handle] = {}
        for token, entry in entries.items():
            claim = remains.read_claim(self.claims, token)
            if claim is not None:
                made[token] = entry.element(claim.task.array, batch).to_handle()
        return made


def _handles(batch: str, array: int, entries: Mapping[Token, Entry]) -> dict[Token, Handle]:
    return {token: entry.element(array, batch).to_handle() for token, entry in entries.items()}
