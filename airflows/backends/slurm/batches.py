"""What is on the shared disk of a batch: its array file, its script, and which job it became.

`batches/<sweep>/<batch>/`, where the sweep is the part of a token that its attempts share:

    tasks       line N+1 is index N: token, tab, launch directory. Written before sbatch is called
    script.sh   what sbatch was given
    job         the array's id and when it was submitted, once sbatch has answered
    <N>.log     link to the log of node 0, because --output can only be named after the index
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflows import ids
from airflows.backends.base import Job
from airflows.backends.slurm.parsing import TaskId
from airflows.errors import BackendUnavailableError
from airflows.ids import Token
from airflows.trial import Handle

_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class Element:
    """What a handle says: `4711_12@BATCH`.

    Attributes:
        task: the element of the array.
        batch: the name of its job.
    """

    task: TaskId
    batch: str

    def to_handle(self) -> Handle:
        """Return the text that the ledger keeps."""
        return Handle(f"{self.task}@{self.batch}")

    @classmethod
    def of(cls, handle: Handle) -> Element:
        """Read a handle.

        Raises:
            BackendUnavailableError: it is not one of ours.
        """
        task, at, batch = handle.partition("@")
        array, _, index = task.partition("_")
        if not (at and array.isdigit() and index.isdigit()):
            message = f"{handle!r} is no handle of the Slurm backend."
            raise BackendUnavailableError(message)
        return cls(TaskId(int(array), int(index)), batch)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of an array file."""

    token: Token
    launch_dir: Path


def batch_name(tokens: Sequence[Token]) -> str:
    """Return the name of the job that runs these attempts, the same whenever they are submitted together."""
    return f"{sweep_of(tokens[0])}-b{ids.digest(list(tokens))[:_DIGEST_CHARS]}"


def sweep_of(token: str) -> str:
    """Return what the tokens of one sweep begin with: `digits-0a1b2c` of `digits-0a1b2c-0007-a0`."""
    return token.rsplit("-", 2)[0]


def tasks_text(jobs: Iterable[Job]) -> str:
    """Return the array file."""
    return "".join(f"{job.token}\t{job.launch_dir}\n" for job in jobs)


class Batches:
    """The batches below a root. What is read once is kept: an array file never changes."""

    def __init__(self, root: Path) -> None:
        self._directory = root / "batches"
        self._entries: dict[str, list[Entry]] = {}

    def directory(self, batch: str) -> Path:
        """Return where a batch is."""
        return self._directory / batch.rpartition("-")[0] / batch

    def write(self, batch: str, jobs: Sequence[Job], script: str) -> Path:
        """Write a batch before it is submitted; return its script.

        Raises:
            OSError: the disk is full, or the root cannot be written.
        """
        directory = self.directory(batch)
        directory.mkdir(parents=True, exist_ok=True)
        _replace(directory / "tasks", tasks_text(jobs))
        _replace(directory / "script.sh", script)
        for index, job in enumerate(jobs):
            with contextlib.suppress(FileExistsError):
                os.symlink(f"{job.launch_dir}/logs/node_0.log", f"{directory}/{index}.log")  # noqa: PTH211
        self._entries[batch] = [Entry(job.token, job.launch_dir) for job in jobs]
        return directory / "script.sh"

    def accepted(self, batch: str, array: int, at: float) -> None:
        """Write down which job a batch became. Without it the job is found by its name."""
        with contextlib.suppress(OSError):
            _replace(self.directory(batch) / "job", f"{array} {at:.0f}\n")

    def job_of(self, batch: str) -> tuple[int, float] | None:
        """Return (array id, when it was submitted) of a batch whose answer came."""
        try:
            array, at = (self.directory(batch) / "job").read_text(encoding="ascii").split()
            return int(array), float(at)
        except (OSError, ValueError):
            return None

    def entry(self, element: Element) -> Entry | None:
        """Return what an element of an array runs; None when its array file is gone."""
        entries = self.entries(element.batch)
        return entries[element.task.index] if element.task.index < len(entries) else None

    def entries(self, batch: str) -> list[Entry]:
        """Return a batch's array file, empty when there is none."""
        if batch not in self._entries:
            try:
                text = (self.directory(batch) / "tasks").read_text(encoding="utf-8")
            except FileNotFoundError:
                return []
            rows = (line.partition("\t") for line in text.splitlines())
            self._entries[batch] = [Entry(Token(token), Path(place)) for token, _, place in rows]
        return self._entries[batch]

    def holding(self, tokens: Sequence[Token]) -> Iterator[tuple[str, dict[Token, int]]]:
        """Yield each batch that was about to be submitted with some of the tokens: name, token to index."""
        wanted = set(tokens)
        for sweep in sorted({sweep_of(token) for token in tokens}):
            try:
                names = sorted(os.listdir(self._directory / sweep))  # noqa: PTH208
            except FileNotFoundError:
                continue
            for batch in names:
                entries = enumerate(self.entries(batch))
                found = {entry.token: index for index, entry in entries if entry.token in wanted}
                if found:
                    yield batch, found


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees all of it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
