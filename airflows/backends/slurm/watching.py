"""Finding runs and watching them: one squeue for all, sacct for what it has lost, then exit files.

squeue is the truth while it lists a task. What it no longer lists is looked up in exit files and in the
accounts; what nobody knows is unknown for a while, because files and accounts may be late, and lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflows.backends.base import Observation, Phase
from airflows.backends.slurm import remains
from airflows.backends.slurm.batches import Batches, Element
from airflows.backends.slurm.commands import Answer, Commands
from airflows.backends.slurm.parsing import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    STUCK,
    TELLING,
    Row,
    TaskId,
    last_words,
    phase_of,
    sacct_rows,
    squeue_rows,
)
from airflows.errors import BackendUnavailableError
from airflows.ids import Token
from airflows.trial import Handle

FILES_LATE_S = 10.0
"""How long a file that a node wrote may be invisible here (NFS keeps attributes for seconds)."""
LOST_AFTER_S = 120.0
"""How long a run that neither squeue nor the accounts know may still turn up."""
_ACCOUNTS_EVERY_S = 5.0
_MANY_IDS = 200
_MOST_KEPT = 100_000
_SHORTEST_S, _LONGEST_S, _SHARE = 1.0, 60.0, 0.1
_EACH_RUN_S = 0.005


def interval_s(since_change_s: float, runs: int = 0) -> float:
    """Return how long after a look the next one is due: seldom where nothing has changed for long.

    A look at many runs costs the controller more, so it is taken less often.
    """
    return min(_LONGEST_S, max(_SHORTEST_S, _EACH_RUN_S * runs, _SHARE * since_change_s))


@dataclass(slots=True)
class Watcher:
    """Looks at runs. All it keeps is what it saw last; a new one starts from the shared disk.

    Attributes:
        commands: of Slurm.
        batches: on the shared disk.
        claims: directory of the claims.
        has_accounts: whether sacct can answer here.
        shown_for_s: how long squeue shows a task that has ended.
        clock: seconds since the epoch.
    """

    commands: Commands
    batches: Batches
    claims: Path
    has_accounts: Callable[[], bool]
    shown_for_s: Callable[[], float]
    clock: Callable[[], float]
    _last: dict[Handle, Observation] = field(default_factory=dict)
    _missing_since: dict[Handle, float] = field(default_factory=dict)
    _accounts: dict[TaskId, Row] = field(default_factory=dict)
    _accounts_at: float = float("-inf")
    _looked_at: float = float("-inf")
    _changed_at: float = float("-inf")

    def hurry(self) -> None:
        """Look again at once and often: something is about to change."""
        self._changed_at = self.clock()
        self._looked_at = float("-inf")

    # Polling

    def poll(self, handles: Sequence[Handle]) -> dict[Handle, Observation]:
        """Observe runs; between two looks the last one is told again.

        Raises:
            BackendUnavailableError: squeue did not answer.
        """
        if not handles:
            return {}
        now = self.clock()
        is_due = now >= self._looked_at + interval_s(now - self._changed_at, len(handles))
        if not is_due and all(handle in self._last for handle in handles):
            return {handle: self._last[handle] for handle in handles}
        elements = {handle: Element.of(handle) for handle in handles}
        tasks = {handle: self._task(element) for handle, element in elements.items()}
        listed = self._squeue({task.array for task in tasks.values()})
        before, self._looked_at = self._looked_at, now
        arrays = {(row.name, task.array) for task, row in listed.items()}
        unlisted = []
        seen: dict[Handle, Observation] = {}
        for handle, element in elements.items():
            row = listed.get(tasks[handle])
            # Job ids start again some day: only the name says that it is ours.
            if row is None or row.name != element.batch:
                unlisted.append(handle)
            else:
                seen[handle] = self._listed(handle, element, row, now)
        if unlisted:
            known = {handle for handle in unlisted if (elements[handle].batch, tasks[handle].array) in arrays}
            again = {h: last for h in unlisted if (last := self._last.get(h)) and last.phase is Phase.ENDED}
            taken = {h: gone for h in known if (gone := self._taken_out(h, before, now)) is not None}
            seen |= taken | again
            left = {handle: elements[handle] for handle in unlisted if handle not in seen}
            seen |= self._unlisted(left, tasks, known, now)
        self._remember(seen, now)
        return seen

    def _task(self, element: Element) -> TaskId:
        """Return the array element that really runs the attempt: the other one, if this was a second copy."""
        entry = self.batches.entry(element)
        directory = self.batches.directory(element.batch)
        if entry is None or not (directory / "twice").exists():
            return element.task
        claim = remains.read_claim(self.claims, entry.token)
        return claim.task if claim else element.task

    def _remember(self, seen: Mapping[Handle, Observation], now: float) -> None:
        for handle, observation in seen.items():
            before = self._last.get(handle)
            if before is None or before.phase is not observation.phase:
                self._changed_at = now
        if len(self._last) > _MOST_KEPT:
            self._last.clear()
            self._missing_since.clear()
        self._last.update(seen)

    def _listed(self, handle: Handle, element: Element, row: Row, now: float) -> Observation:
        phase = phase_of(row.state)
        if phase is Phase.ENDED:
            return self._ended(handle, element, row, now)
        self._missing_since.pop(handle, None)
        if phase is Phase.QUEUED:
            return Observation(phase, detail=_waiting(row))
        detail = "" if phase is Phase.RUNNING else f"Slurm says {row.state}"
        host = remains.first_host(row.nodes)
        return Observation(phase, started_at=row.started, host=host, detail=detail)

    def _ended(self, handle: Handle, element: Element, row: Row, now: float) -> Observation:
        """Observe a run that Slurm says is over, once its exit file had time to become visible."""
        entry = self.batches.entry(element)
        left = remains.read_exit(entry.launch_dir) if entry else {}
        claim = remains.read_claim(self.claims, entry.token) if entry else None
        is_late = now - self._missing_since.setdefault(handle, now) >= FILES_LATE_S
        if not left and row.state not in TELLING:
            if not is_late:
                return Observation(Phase.UNKNOWN, detail="it has ended; its exit file is not visible yet")
            row = self._with_exit_code(element.task, element.batch, row)
        if claim is not None and entry is not None and claim.task != element.task and not left:
            # A second copy that left at once: from now on the first one is watched.
            (self.batches.directory(element.batch) / "twice").touch()
            return Observation(Phase.UNKNOWN, detail=f"it is a copy of {claim.task}")
        return remains.ended(row, left, claim)

    def _unlisted(
        self,
        elements: Mapping[Handle, Element],
        tasks: Mapping[Handle, TaskId],
        known: set[Handle],
        now: float,
    ) -> dict[Handle, Observation]:
        """Observe runs that squeue does not list. `known` are those of arrays that it does list."""
        seen: dict[Handle, Observation] = {}
        for handle, element in elements.items():
            entry = self.batches.entry(element)
            left = remains.read_exit(entry.launch_dir) if entry else {}
            if entry is not None and remains.is_clean(left):
                seen[handle] = remains.ended(None, left, remains.read_claim(self.claims, entry.token))
            self._missing_since.setdefault(handle, now)
        open_ones = [handle for handle in elements if handle not in seen]
        self._ask_accounts({tasks[h]: elements[h].batch for h in open_ones}, now)
        for handle in open_ones:
            row = self._accounts.get(tasks[handle])
            if row is not None and row.name == elements[handle].batch and phase_of(row.state) is Phase.ENDED:
                seen[handle] = self._ended(handle, elements[handle], row, now)
            else:
                sibling = handle in known or any(t.array == tasks[handle].array for t in self._accounts)
                seen[handle] = self._untold(handle, elements[handle], now, has_sibling=sibling)
        return seen

    def _taken_out(self, handle: Handle, before: float, now: float) -> Observation | None:
        """Observe a run that waited at the last look, and of whose array only others are listed now.

        Had it run and ended since, squeue would still show it.
        """
        last = self._last.get(handle)
        if last is None or last.phase is not Phase.QUEUED or now - before >= self.shown_for_s():
            return None
        return _cancelled_before_it_ran(now)

    def _untold(self, handle: Handle, element: Element, now: float, *, has_sibling: bool) -> Observation:
        """Observe a run of which Slurm says nothing at all."""
        entry = self.batches.entry(element)
        left = remains.read_exit(entry.launch_dir) if entry else {}
        claim = remains.read_claim(self.claims, entry.token) if entry else None
        missing_s = now - self._missing_since[handle]
        if left and missing_s >= FILES_LATE_S:
            return remains.ended(None, left, claim)
        if claim is None and has_sibling and missing_s >= FILES_LATE_S:
            return _cancelled_before_it_ran(now)
        if missing_s >= LOST_AFTER_S:
            return remains.ended(None, left, claim)
        return Observation(Phase.UNKNOWN, detail="Slurm does not list it")

    # Asking

    def _squeue(self, arrays: Iterable[int]) -> dict[TaskId, Row]:
        ids = sorted(arrays)
        which = ["--me"] if len(ids) > _MANY_IDS else ["-j", ",".join(map(str, ids))]
        answer = self.commands.ask("squeue", "-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT, *which)
        if answer.code and "Invalid job id" not in answer.err:
            raise _silent_queue(answer)
        return squeue_rows(answer.out)

    def _ask_accounts(self, wanted: Mapping[TaskId, str], now: float) -> None:
        if not wanted or not self.has_accounts() or now < self._accounts_at + _ACCOUNTS_EVERY_S:
            return
        self._accounts_at = now
        arrays = sorted({task.array for task in wanted})
        self._accounts = {}
        for start in range(0, len(arrays), _MANY_IDS):
            ids = ",".join(map(str, arrays[start : start + _MANY_IDS]))
            answer = self._sacct("-j", ids)
            for task, rows in answer.items():
                named = [row for row in rows if row.name == wanted.get(task, row.name)]
                # Of several starts the last one counts.
                self._accounts |= {task: named[-1]} if named else {}

    def _sacct(self, *which: str) -> dict[TaskId, list[Row]]:
        """Ask the accounts; no answer is no news, because exit files may still tell."""
        try:
            answer = self.commands.ask(
                "sacct", "-nXPD", "-S", "now-30days", "-E", "now", "-o", SACCT_FIELDS, *which
            )
        except BackendUnavailableError:
            return {}
        return {} if answer.code else sacct_rows(answer.out)

    def _with_exit_code(self, task: TaskId, batch: str, row: Row) -> Row:
        """Return the row with its exit code, which squeue does not show."""
        if row.exit_code is not None:
            return row
        if self.has_accounts():
            named = [one for one in self._sacct("-j", str(task)).get(task, ()) if one.name == batch]
            return named[-1] if named and phase_of(named[-1].state) is Phase.ENDED else row
        answer = self.commands.ask("scontrol", "show", "job", "-o", str(task))
        found = [word for word in answer.out.split() if word.startswith("ExitCode=")]
        code, _, signal = found[0].removeprefix("ExitCode=").partition(":") if found else ("", "", "")
        if not (code.isdigit() and signal.isdigit()):
            return row
        return Row(
            row.state,
            row.submitted,
            row.started,
            row.ended,
            row.nodes,
            row.reason,
            row.name,
            int(code),
            int(signal),
        )

    # Finding

    def find(self, tokens: Sequence[Token]) -> dict[Token, Handle]:
        """Return the handles of the attempts that were submitted.

        Raises:
            BackendUnavailableError: squeue did not answer.
        """
        found: dict[Token, Handle] = {}
        unanswered: dict[str, dict[Token, int]] = {}
        for batch, indices in self.batches.holding(tokens):
            job = self.batches.job_of(batch)
            if job is None:
                unanswered[batch] = indices
            else:
                found |= _handles(batch, job[0], indices)
        open_ones = {b: i for b, i in unanswered.items() if any(token not in found for token in i)}
        if open_ones:
            for batch, array in self._arrays_named(list(open_ones)).items():
                self.batches.accepted(batch, array, self.clock())
                found = _handles(batch, array, open_ones[batch]) | found
            for batch, indices in open_ones.items():
                found = self._started(batch, indices) | found
        return found

    def _arrays_named(self, names: Sequence[str]) -> dict[str, int]:
        """Return the array of each job name; of several the oldest, and the others are cancelled."""
        listed: dict[str, dict[int, float]] = {}
        for start in range(0, len(names), _MANY_IDS):
            chunk = ",".join(names[start : start + _MANY_IDS])
            answer = self.commands.ask(
                "squeue", "-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT, "--me", "-n", chunk
            )
            if answer.code:
                raise _silent_queue(answer)
            for task, row in squeue_rows(answer.out).items():
                listed.setdefault(row.name, {})[task.array] = row.submitted or 0.0
        left = [name for name in names if name not in listed]
        if left and self.has_accounts():
            for task, rows in self._sacct("--name", ",".join(left)).items():
                for row in rows:
                    listed.setdefault(row.name, {})[task.array] = row.submitted or 0.0
        for arrays in listed.values():
            for array in sorted(arrays, key=lambda one: (arrays[one], one))[1:]:
                self.commands.ask("scancel", str(array))
        return {name: min(arrays, key=lambda one: (arrays[one], one)) for name, arrays in listed.items()}

    def _started(self, batch: str, indices: Mapping[Token, int]) -> dict[Token, Handle]:
        """Return the handles of attempts that started once, should Slurm have forgotten them."""
        made: dict[Token, Handle] = {}
        for token, index in indices.items():
            claim = remains.read_claim(self.claims, token)
            if claim is not None:
                made[token] = Element(TaskId(claim.task.array, index), batch).to_handle()
        return made


def _handles(batch: str, array: int, indices: Mapping[Token, int]) -> dict[Token, Handle]:
    return {token: Element(TaskId(array, index), batch).to_handle() for token, index in indices.items()}


def _cancelled_before_it_ran(now: float) -> Observation:
    # An element that is cancelled while it waits leaves no row anywhere, or one for the whole rest.
    detail = "it was cancelled before it ran: Slurm knows its array, and not this element"
    return Observation(Phase.ENDED, word="CANCELLED", detail=detail, ended_at=now)


def _waiting(row: Row) -> str:
    if not row.reason:
        return ""
    stuck = ", which does not go away by itself" if row.reason in STUCK else ""
    return f"Slurm says {row.reason}{stuck}"


def _silent_queue(answer: Answer) -> BackendUnavailableError:
    return BackendUnavailableError(f"Slurm does not answer squeue: {last_words(answer.err)}.")
