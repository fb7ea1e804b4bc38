"""Watching runs: one squeue for all, sacct for what it has lost, then exit files.

squeue is the truth while it lists a task. What it no longer lists is looked up in exit files and in the
accounts; what nobody knows is unknown for a while, because files and accounts may be late, and lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflows.backends.base import Observation, Phase
from airflows.backends.slurm import remains
from airflows.backends.slurm.batches import Batches, Element, Entry, sweep_of
from airflows.backends.slurm.commands import Commands
from airflows.backends.slurm.exitfiles import ExitFiles
from airflows.backends.slurm.parsing import TELLING, Row, TaskId, phase_of, waiting_words
from airflows.backends.slurm.queries import MANY_IDS, accounts, queue
from airflows.ids import Token
from airflows.trial import Handle

FILES_LATE_S = 10.0
"""How long a file that a node wrote may be invisible here (NFS keeps attributes for seconds)."""
UNBEGUN_AFTER_S = 65.0
"""How long a file may be invisible here that was asked for before it was made (NFS: a minute, `acdirmax`)."""
LOST_AFTER_S = 120.0
"""How long a run that neither squeue nor the accounts know may still turn up."""
_ACCOUNTS_EVERY_S = 5.0
_MOST_KEPT = 100_000
_SHORTEST_S, _LONGEST_S, _SHARE = 1.0, 60.0, 0.1
_EACH_RUN_S = 0.01


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
        has_setup: lines of the user's own are run before the preamble.
    """

    commands: Commands
    batches: Batches
    claims: Path
    has_accounts: Callable[[], bool]
    shown_for_s: Callable[[], float]
    clock: Callable[[], float]
    has_setup: bool = False
    _last: dict[Handle, Observation] = field(default_factory=dict)
    _missing_since: dict[Handle, float] = field(default_factory=dict)
    _accounts: dict[TaskId, Row] = field(default_factory=dict)
    _doubted: dict[Handle, Row] = field(default_factory=dict)
    _accounts_at: float = float("-inf")
    _looked_at: float = float("-inf")
    _changed_at: float = float("-inf")
    _files_at: float = float("-inf")
    _files: ExitFiles = field(init=False)

    def __post_init__(self) -> None:
        """Look at the same disk by the same clock."""
        self._files = ExitFiles(self.batches, self.clock)

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
            return self._between_looks(handles, now)
        elements = {handle: Element.of(handle) for handle in handles}
        tasks = self._tasks(elements)
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
        self._files.follow(seen)
        return seen

    def wait(self, timeout_s: float, pause: Callable[[float], None]) -> None:
        """Return when one of a few runs has left an exit file, or after `timeout_s` seconds.

        Slurm tells nobody when something changes, and asking it is dear.
        """
        self._files.wait(timeout_s, pause, self._changed_at)

    def _between_looks(self, handles: Sequence[Handle], now: float) -> dict[Handle, Observation]:
        """Tell the last look again, and what exit files have said since."""
        told = {handle: self._last[handle] for handle in handles}
        if now >= self._files_at + self._files.every_s(now - self._changed_at):
            self._files_at = now
            ended, is_worth_a_look = self._files.news()
            if is_worth_a_look:
                self._changed_at = now
            told |= {handle: one for handle, one in ended.items() if handle in told}
            self._remember(told, now)
        self._files.follow(told)
        return told

    def _tasks(self, elements: Mapping[Handle, Element]) -> dict[Handle, TaskId]:
        batches = {element.batch for element in elements.values()}
        twice = {batch for batch in batches if (self.batches.directory(batch) / "twice").exists()}
        return {
            handle: self._task(element) if element.batch in twice else element.task
            for handle, element in elements.items()
        }

    def _task(self, element: Element) -> TaskId:
        """Return the array element that really runs the attempt: the other one, if this was a second copy."""
        entry = self.batches.entry(element)
        if entry is None:
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
            self._doubted.clear()
        self._last.update(seen)

    def _listed(self, handle: Handle, element: Element, row: Row, now: float) -> Observation:
        phase = phase_of(row.state)
        if phase is Phase.ENDED:
            return self._ended(handle, element, row, now)
        self._missing_since.pop(handle, None)
        self._doubted.pop(handle, None)
        if element.slot is not None and (over := self._over_in_pack(element)) is not None:
            return over
        if phase is Phase.QUEUED:
            return Observation(phase, detail=waiting_words(row))
        detail = "" if row.state == "RUNNING" else f"Slurm says {row.state}"
        host = remains.first_host(row.nodes)
        return Observation(phase, started_at=row.started, host=host, detail=detail)

    def _over_in_pack(self, element: Element) -> Observation | None:
        """Observe one in a pack that has left its exit file while others go on; None for those."""
        entry = self.batches.entry(element)
        left = remains.read_exit(entry.launch_dir) if entry else {}
        if entry is None or not remains.is_last_word(left):
            return None
        return remains.ended(None, left, remains.read_start(self.claims, entry.token))

    def _ended(self, handle: Handle, element: Element, row: Row, now: float) -> Observation:
        """Observe a run that Slurm says is over, once its exit file had time to become visible."""
        entry = self.batches.entry(element)
        left = remains.read_exit(entry.launch_dir) if entry else {}
        if remains.is_clean(left):
            return remains.ended(row, left, None)
        claim = remains.read_start(self.claims, entry.token) if entry else None
        is_late = now - self._missing_since.setdefault(handle, now) >= FILES_LATE_S
        is_packed = element.slot is not None
        if not left and not is_late and (is_packed or row.state not in TELLING):
            # One in a pack may have ended long before its element did.
            return Observation(Phase.UNKNOWN, detail="it has ended; its exit file is not visible yet")
        if not left and row.state not in TELLING:
            known = self._doubted.get(handle)
            if known is None or known.started != row.started:
                known = self._with_exit_code(element.task, element.batch, row)
            row = known
            if entry is not None and (unrun := self._unrun(handle, entry, row, claim, now)):
                return unrun
        if claim is not None and entry is not None and claim.task != element.task and not left:
            # A second copy that left at once: from now on the first one is watched.
            (self.batches.directory(element.batch) / "twice").touch()
            return Observation(Phase.UNKNOWN, detail=f"it is a copy of {claim.task}")
        own = remains.row_of_member(row, left, started=claim is not None) if is_packed else row
        return remains.ended(own, left, claim)

    def _unrun(
        self, handle: Handle, entry: Entry, row: Row, claim: remains.Claim | None, now: float
    ) -> Observation | None:
        """Observe a run that is over, and of whose command nothing was run; None when some may have been."""
        if remains.is_blind(row, claim):
            others = self.has_started(entry.token)
            return remains.blind(row, entry.launch_dir, others_started=others)
        if entry.slot is not None or not remains.never_began(row, claim):
            return None
        if now - self._missing_since[handle] < UNBEGUN_AFTER_S:
            # By the end of that Slurm may have forgotten it.
            self._doubted[handle] = row
            return Observation(Phase.UNKNOWN, detail="it has ended; whether it began cannot be seen yet")
        return remains.unbegun(row, is_of_node=not self.has_setup or self.has_started(entry.token))

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
                seen[handle] = remains.ended(None, left, None)
            self._missing_since.setdefault(handle, now)
        open_ones = [handle for handle in elements if handle not in seen]
        self._ask_accounts({tasks[h]: elements[h].batch for h in open_ones}, now)
        for handle in open_ones:
            row = self._accounts.get(tasks[handle]) or self._doubted.get(handle)
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
        claim = remains.read_start(self.claims, entry.token) if entry else None
        missing_s = now - self._missing_since[handle]
        if left and missing_s >= FILES_LATE_S:
            return remains.ended(None, left, claim)
        if claim is None and has_sibling and missing_s >= FILES_LATE_S:
            return _cancelled_before_it_ran(now)
        if missing_s >= LOST_AFTER_S:
            return remains.ended(None, left, claim)
        return Observation(Phase.UNKNOWN, detail="Slurm does not list it")

    def has_started(self, token: Token) -> bool:
        """Whether any attempt of a token's sweep has, so that some node sees the root and comes that far."""
        claims = self.claims.glob(f"{sweep_of(token)}-*.0")
        return any(remains.read_start(self.claims, claim.stem) for claim in claims)

    # Asking

    def _squeue(self, arrays: Iterable[int]) -> dict[TaskId, Row]:
        ids = sorted(arrays)
        which = ["--me"] if len(ids) > MANY_IDS else ["-j", ",".join(map(str, ids))]
        return queue(self.commands, "-t", "all", *which)

    def _ask_accounts(self, wanted: Mapping[TaskId, str], now: float) -> None:
        if not wanted or not self.has_accounts() or now < self._accounts_at + _ACCOUNTS_EVERY_S:
            return
        self._accounts_at = now
        arrays = sorted({task.array for task in wanted})
        self._accounts = {}
        for start in range(0, len(arrays), MANY_IDS):
            ids = ",".join(map(str, arrays[start : start + MANY_IDS]))
            answer = accounts(self.commands, "-j", ids)
            for task, rows in answer.items():
                named = [row for row in rows if row.name == wanted.get(task, row.name)]
                # Of several starts the last one counts.
                self._accounts |= {task: named[-1]} if named else {}

    def _with_exit_code(self, task: TaskId, batch: str, row: Row) -> Row:
        """Return the row with its exit code, which squeue does not show."""
        if row.exit_code is not None:
            return row
        if self.has_accounts():
            rows = accounts(self.commands, "-j", str(task)).get(task, ())
            named = [one for one in rows if one.name == batch]
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


def _cancelled_before_it_ran(now: float) -> Observation:
    # An element that is cancelled while it waits leaves no row anywhere, or one for the whole rest.
    detail = "it was cancelled before it ran: Slurm knows its array, and not this element"
    return Observation(Phase.ENDED, word="CANCELLED", detail=detail, ended_at=now)
