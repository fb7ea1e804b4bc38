"""Asking runs to end. One in a pack is asked by a file, because Slurm knows only the element of them all."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from airflows.backends.local.runs import CANCELLED
from airflows.backends.slurm import remains
from airflows.backends.slurm.batches import Batches, Element, Entry
from airflows.backends.slurm.commands import Commands
from airflows.backends.slurm.parsing import TaskId, last_words, ranges
from airflows.backends.slurm.queries import MANY_IDS
from airflows.errors import BackendUnavailableError
from airflows.trial import Handle

_ASKED_TO_END = 143


@dataclass(frozen=True, slots=True)
class Canceller:
    """Ends runs.

    Attributes:
        commands: of Slurm.
        batches: on the shared disk.
        claims: directory of the claims.
        patience_s: how long one that was asked to end may take, before Slurm ends it.
        clock: seconds since the epoch.
    """

    commands: Commands
    batches: Batches
    claims: Path
    patience_s: float
    clock: Callable[[], float]
    _asked_at: dict[Handle, float] = field(default_factory=dict)

    def cancel(self, handles: Sequence[Handle]) -> None:
        """Ask runs to end: those that wait are taken out, those that run get SIGTERM and the grace time.

        One that should have gone long ago, and is asked again, is ended by Slurm; one in a pack only with all
        others of its element.

        Raises:
            BackendUnavailableError: Slurm did not answer, or the root cannot be written.
        """
        now = self.clock()
        elements = self._known(handles)
        new = {handle for handle in elements if handle not in self._asked_at}
        self._stop(elements[handle] for handle in new if elements[handle].slot is not None)
        self._asked_at.update(dict.fromkeys(new, now))
        overdue = {handle for handle in elements if now - self._asked_at[handle] > self.patience_s}
        alone = {handle: element.task for handle, element in elements.items() if element.slot is None}
        asked = [task for handle, task in alone.items() if handle not in overdue]
        packs = {element.task: element for element in elements.values() if element.slot is not None}
        wholly = [task for task, element in packs.items() if self._is_to_end(element)]
        self._take_out([*asked, *wholly])
        # To the batch shell alone: it passes a single SIGTERM on, and leaves an exit file.
        self._scancel(asked, "--batch", "--signal=USR2")
        late = {elements[handle].task for handle in overdue}
        self._scancel([task for task in [*alone.values(), *wholly] if task in late])

    def withdraw(self, handles: Sequence[Handle]) -> None:
        """Take those that wait out of the queue; a pack stays there unless all that is left of it is named.

        Raises:
            BackendUnavailableError: Slurm did not answer.
        """
        elements = self._known(handles).values()
        named = set(elements)
        self._take_out([e.task for e in elements if e.slot is None or self._is_to_end(e, named)])

    def _known(self, handles: Iterable[Handle]) -> dict[Handle, Element]:
        """Return what runs them, but not of those in packs of which nobody can see what else is in them."""
        elements = {handle: Element.of(handle) for handle in handles}
        return {h: e for h, e in elements.items() if e.slot is None or self.batches.row(e)}

    def _stop(self, elements: Iterable[Element]) -> None:
        for element in elements:
            entry = self.batches.entry(element)
            if entry is None:
                continue
            try:
                (entry.launch_dir / CANCELLED).touch()
                self._keep_from_starting(element.task, entry)
            except OSError as exc:
                message = f"{exc.filename} cannot be written: {exc.strerror}."
                raise BackendUnavailableError(message) from exc

    def _keep_from_starting(self, task: TaskId, entry: Entry) -> None:
        """Take the claim of an attempt that has not started: whoever has it decides, and so it never will."""
        now = self.clock()
        try:
            with (self.claims / f"{entry.token}.0").open("x", encoding="utf-8") as file:
                file.write(f"{task} {remains.NOBODY} {now}\n")
        except FileExistsError:
            claim = remains.read_claim(self.claims, entry.token)
            if claim is None or claim.host != remains.NOBODY:
                return
        if not remains.read_exit(entry.launch_dir):
            ended = {"exit_code": _ASKED_TO_END, "word": "killed", "task": str(task), "ended": now}
            (entry.launch_dir / "exit.json").write_text(json.dumps(ended), encoding="utf-8")

    def _is_to_end(self, element: Element, named: Collection[Element] = ()) -> bool:
        """Whether nothing in an element is to go on but what is named."""
        return all(
            entry.element(element.task.array, element.batch) in named
            or (entry.launch_dir / CANCELLED).exists()
            or remains.is_last_word(remains.read_exit(entry.launch_dir))
            for entry in self.batches.row(element)
        )

    def _take_out(self, tasks: Sequence[TaskId]) -> None:
        # Asked for waiting tasks alone, scancel ends all that wait in one record; a hold gives each its own.
        self._ask(tasks, "scontrol", "hold")
        self._scancel(tasks, "--state=PENDING")

    def _scancel(self, tasks: Sequence[TaskId], *options: str) -> None:
        self._ask(tasks, "scancel", *options)

    def _ask(self, tasks: Sequence[TaskId], command: str, *options: str) -> None:
        for start in range(0, len(tasks), MANY_IDS):
            answer = self.commands.ask(command, *options, *_compact(tasks[start : start + MANY_IDS]))
            # It also fails for what has gone already.
            if answer.code and "contact" in answer.err:
                message = f"Slurm does not answer {command}: {last_words(answer.err)}."
                raise BackendUnavailableError(message)


def _compact(tasks: Iterable[TaskId]) -> Iterator[str]:
    """Yield tasks as scancel takes them, each array once: `4711_[0-2,4]`."""
    arrays: dict[int, list[int]] = {}
    for task in tasks:
        arrays.setdefault(task.array, []).append(task.index)
    for array, indices in arrays.items():
        yield f"{array}_[{ranges(sorted(set(indices)))}]"
