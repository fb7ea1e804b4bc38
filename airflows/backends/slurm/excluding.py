"""Keeping what waits in Slurm's queue from nodes that have turned out bad since it was submitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airflows.backends.slurm.batches import Batches, Element
from airflows.backends.slurm.commands import Commands
from airflows.backends.slurm.script import excluded_by
from airflows.errors import BackendUnavailableError
from airflows.trial import Handle

_DIRECTIVE = "#SBATCH "


def keep_from(commands: Commands, batches: Batches, handles: Sequence[Handle], nodes: Sequence[str]) -> None:
    """Exclude nodes for the tasks that wait of the arrays of some runs, besides those of their scripts.

    An array that could run nowhere then is left as it is.

    Raises:
        BackendUnavailableError: Slurm did not answer.
    """
    elements = map(Element.of, handles)
    for array, batch in sorted({(element.task.array, element.batch) for element in elements}):
        script = batches.directory(batch) / "script.sh"
        excluded = ",".join([*filter(None, [_excluded_in(script)]), *nodes])
        # On an update Slurm would take nodes of which none is left, and let the tasks wait for ever.
        if nodes and commands.ask("sbatch", "--test-only", f"--exclude={excluded}", str(script)).code:
            continue
        answer = commands.ask("scontrol", "update", f"JobId={array}", f"ExcNodeList={excluded}")
        # It also complains of tasks that run, or that have ended.
        if answer.code and "contact" in answer.err:
            message = f"Slurm does not answer scontrol: {answer.err.strip()}"
            raise BackendUnavailableError(message)


def _excluded_in(script: Path) -> str:
    try:
        lines = script.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return excluded_by([line.removeprefix(_DIRECTIVE) for line in lines if line.startswith(_DIRECTIVE)])
