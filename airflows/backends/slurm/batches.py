"""What is on the shared disk of a batch: its array file, its script, and which job it became.

`batches/<sweep>/<batch>/`, where the sweep is the part of a token that its attempts share:

    tasks       line N+1 is index N: token, tab, launch directory. Written before sbatch is called
    packs       in place of it where an element runs several attempts: as many such pairs on line N+1
    script.sh   what sbatch was given
    job         the array's id and when it was submitted, once sbatch has answered
    <N>.log     link to the log of node 0, because --output can only be named after the index; of a pack what
                its own shell said
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
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
    """What a handle says: `4711_12@BATCH`, or `4711_12/3@BATCH` of one in a pack.

    Attributes:
        task: the element of the array.
        batch: the name of its job.
        slot: the place in the pack that the element runs; None where it runs one attempt alone.
    """

    task: TaskId
    batch: str
    slot: int | None = None

    def to_handle(self) -> Handle:
        """Return the text that the ledger keeps."""
        place = "" if self.slot is None else f"/{self.slot}"
        return Handle(f"{self.task}{place}@{self.batch}")

    @classmethod
    def of(cls, handle: Handle) -> Element:
        """Read a handle.

        Raises:
            BackendUnavailableError: it is not one of ours.
        """
        task, at, batch = handle.partition("@")
        array, _, place = task.partition("_")
        index, slash, slot = place.partition("/")
        if not (at and array.isdigit() and index.isdigit() and slot.isdigit() == bool(slash)):
            message = f"{handle!r} is no handle of the Slurm backend."
            raise BackendUnavailableError(message)
        return cls(TaskId(int(array), int(index)), batch, int(slot) if slash else None)


@dataclass(frozen=True, slots=True)
class Entry:
    """One attempt in an array file.

    Attributes:
        token: of the attempt.
        launch_dir: of the attempt.
        index: of the element that runs it.
        slot: as in `Element`.
    """

    token: Token
    launch_dir: Path
    index: int
    slot: int | None = None

    def element(self, array: int, batch: str) -> Element:
        """Return what runs it, once the array has an id."""
        return Element(TaskId(array, self.index), batch, self.slot)


def batch_name(tokens: Sequence[Token], members: int = 1) -> str:
    """Return the name of the job that runs these attempts, the same whenever they are submitted together.

    Args:
        tokens: of the attempts.
        members: so many of them are one element.
    """
    told = [*tokens, f"packed by {members}"] if members > 1 else list(tokens)
    return f"{sweep_of(tokens[0])}-b{ids.digest(told)[:_DIGEST_CHARS]}"


def sweep_of(token: str) -> str:
    """Return what the tokens of one sweep begin with: `digits-0a1b2c` of `digits-0a1b2c-0007-a0`."""
    return token.rsplit("-", 2)[0]


def tasks_text(jobs: Sequence[Job], members: int = 1) -> str:
    """Return the array file."""
    pairs = [f"{job.token}\t{job.launch_dir}" for job in jobs]
    rows = (pairs[start : start + members] for start in range(0, len(pairs), members))
    return "".join("\t".join(row) + "\n" for row in rows)


class Batches:
    """The batches below a root. What is read once is kept: an array file never changes."""

    def __init__(self, root: Path) -> None:
        self._directory = root / "batches"
        self._rows: dict[str, list[list[Entry]]] = {}

    def directory(self, batch: str) -> Path:
        """Return where a batch is."""
        return self._directory / batch.rpartition("-")[0] / batch

    def write(self, batch: str, jobs: Sequence[Job], script: str, members: int | None = None) -> Path:
        """Write a batch before it is submitted; return its script.

        Args:
            batch: its name.
            jobs: what it runs.
            script: what sbatch is given.
            members: so many jobs are one element; None where each is one by itself.

        Raises:
            OSError: the disk is full, or the root cannot be written.
        """
        directory = self.directory(batch)
        directory.mkdir(parents=True, exist_ok=True)
        text = tasks_text(jobs, members or 1)
        _replace(directory / ("tasks" if members is None else "packs"), text)
        _replace(directory / "script.sh", script)
        for index, job in enumerate(jobs if members is None else ()):
            with contextlib.suppress(FileExistsError):
                os.symlink(f"{job.launch_dir}/logs/node_0.log", f"{directory}/{index}.log")  # noqa: PTH211
        self._rows[batch] = _rows(text, is_packed=members is not None)
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
        """Return what an element of an array runs in its slot; None when its array file is gone."""
        row, slot = self.row(element), element.slot or 0
        return row[slot] if slot < len(row) else None

    def row(self, element: Element) -> Sequence[Entry]:
        """Return all that an element of an array runs; nothing when its array file is gone."""
        rows = self._read(element.batch)
        return rows[element.task.index] if element.task.index < len(rows) else ()

    def entries(self, batch: str) -> list[Entry]:
        """Return a batch's array file, empty when there is none."""
        return list(itertools.chain.from_iterable(self._read(batch)))

    def _read(self, batch: str) -> list[list[Entry]]:
        if batch not in self._rows:
            for name in ("tasks", "packs"):
                with contextlib.suppress(FileNotFoundError):
                    text = (self.directory(batch) / name).read_text(encoding="utf-8")
                    self._rows[batch] = _rows(text, is_packed=name == "packs")
        return self._rows.get(batch, [])

    def holding(self, tokens: Sequence[Token]) -> Iterator[tuple[str, dict[Token, Entry]]]:
        """Yield each batch that was about to be submitted with some of the tokens: name, token to entry."""
        wanted = set(tokens)
        for sweep in sorted({sweep_of(token) for token in tokens}):
            try:
                names = sorted(os.listdir(self._directory / sweep))  # noqa: PTH208
            except FileNotFoundError:
                continue
            for batch in names:
                found = {entry.token: entry for entry in self.entries(batch) if entry.token in wanted}
                if found:
                    yield batch, found


def _rows(text: str, *, is_packed: bool) -> list[list[Entry]]:
    rows = []
    for index, line in enumerate(text.splitlines()):
        words = line.split("\t")
        pairs = enumerate(zip(words[::2], words[1::2], strict=True))
        rows.append([Entry(Token(t), Path(d), index, slot if is_packed else None) for slot, (t, d) in pairs])
    return rows


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees all of it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
