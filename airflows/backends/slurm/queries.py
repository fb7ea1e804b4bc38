"""The questions to Slurm: the queue, the accounts for what it no longer lists, and what one may submit."""

from __future__ import annotations

from airflows.backends.slurm.commands import Answer, Commands
from airflows.backends.slurm.parsing import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    Row,
    TaskId,
    last_words,
    max_submit_of,
    own_limits_of,
    sacct_rows,
    squeue_rows,
)
from airflows.errors import BackendUnavailableError

MANY_IDS = 200
"""As many ids or names go into one question."""
_GONE = "Invalid job id"


def queue(commands: Commands, *which: str) -> dict[TaskId, Row]:
    """Ask squeue; ids that it has forgotten are no error.

    Raises:
        BackendUnavailableError: it did not answer.
    """
    answer = commands.ask("squeue", "-h", "-r", "-o", SQUEUE_FORMAT, *which)
    if answer.code and _GONE not in answer.err:
        raise _silent(answer)
    return squeue_rows(answer.out)


def accounts(commands: Commands, *which: str) -> dict[TaskId, list[Row]]:
    """Ask sacct; no answer is no news, because exit files may still tell."""
    try:
        answer = commands.ask("sacct", "-nXPD", "-S", "now-30days", "-E", "now", "-o", SACCT_FIELDS, *which)
    except BackendUnavailableError:
        return {}
    return {} if answer.code else sacct_rows(answer.out)


def most_submitted(commands: Commands, user: str) -> int | None:
    """Return how many jobs a user may have in Slurm by its associations; None for any number.

    The controller keeps them in memory, where a look takes a few milliseconds. Where it does not show them,
    the accounts are asked, which takes a fifth of a second.
    """
    try:
        shown = commands.ask("scontrol", "show", "assoc_mgr", f"users={user}", "flags=assoc")
        limits = own_limits_of(shown.out, user)
        if limits or commands.missing("sacctmgr"):
            return min((limit for limit in limits if limit is not None), default=None)
        answer = commands.ask("sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=maxsubmit")
    except BackendUnavailableError:
        return None
    return max_submit_of(answer.out)


def _silent(answer: Answer) -> BackendUnavailableError:
    return BackendUnavailableError(f"Slurm does not answer squeue: {last_words(answer.err)}.")
