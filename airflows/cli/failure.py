"""How a command fails: exit status and one paragraph, chosen here and nowhere else."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from airflows.cli.terminal import Session
from airflows.documents import error_document
from airflows.errors import AirflowsError, SpecError

SUCCEEDED = 0
FAILED = 1
WRONG_REQUEST = 2
NOT_REACHED = 3
INTERRUPTED = 130

_MORE_ERRORS = 10
# With `-o json` these print a document on each line, the last one too.
_STREAMING = frozenset({"watch", "logs"})


class UsageError(AirflowsError):
    """The words on the command line are wrong."""

    kind = "usage"
    exit_code = WRONG_REQUEST


class NoResultError(AirflowsError):
    """What was asked for does not exist, because what was run did not bring it about."""

    kind = "no_result"
    exit_code = FAILED


class UserInterruptError(AirflowsError):
    """A person pressed Ctrl-C."""

    kind = "interrupted"
    exit_code = INTERRUPTED

    def __init__(self) -> None:
        super().__init__("Interrupted.")


class SystemFailureError(AirflowsError):
    """The operating system said no: a full disk, a missing permission."""

    kind = "system"
    exit_code = NOT_REACHED


class DefectError(AirflowsError):
    """Something that should not happen: a defect in airflows."""

    kind = "internal"
    exit_code = FAILED


def as_error(exc: Exception) -> AirflowsError:
    """Return any exception as one of ours."""
    match exc:
        case AirflowsError():
            return exc
        case OSError():
            return _from_system(exc)
        case _ if hasattr(exc, "format_message"):
            return _from_words(exc)
        case MemoryError():
            return DefectError("there is not enough memory.")
        case _:
            return DefectError(
                _sentence(f"this should not happen: {type(exc).__name__}: {exc}".rstrip(": ")),
                hint="Run it again with --debug and report the traceback as a defect of airflows.",
            )


def _from_system(exc: OSError) -> SystemFailureError:
    words = exc.strerror or str(exc) or type(exc).__name__
    where = f"{exc.filename}: " if exc.filename else ""
    hints = {
        errno.ENOSPC: "Make room, then start the same command again: nothing is lost.",
        errno.EROFS: "Set AIRFLOWS_HOME to a directory you can write.",
        errno.EACCES: "Check its permissions, or set AIRFLOWS_HOME to a directory you can write.",
    }
    return SystemFailureError(f"{where}{words}.", hint=hints.get(exc.errno or 0))


def _from_words(exc: Any) -> UsageError:
    """Return what typer says of the words on the command line."""
    context = getattr(exc, "ctx", None)
    command = "airflows" if context is None else context.command_path
    return UsageError(_sentence(exc.format_message()), hint=f"See `{command} --help`.")


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "?", "!")) else f"{text}."


def report(exc: Exception, args: Sequence[str]) -> int:
    """Print an error as the arguments ask for it; return the exit status."""
    error = as_error(exc)
    if has_option(args, ("--debug",)) or os.environ.get("AIRFLOWS_DEBUG"):
        traceback.print_exception(exc, file=sys.stderr)
    session = Session("json" if wants_json(args) else "text", no_color=has_option(args, ("--no-color",)))
    if session.is_json:
        show = session.record if args and args[0] in _STREAMING else session.document
        show(error_document(error))
    session.note(*paragraph(error, session))
    return error.exit_code


def paragraph(error: AirflowsError, session: Session) -> list[str]:
    """Return the words for people: one paragraph, and one line for each further error of the file."""
    if isinstance(error, UserInterruptError):
        return [error.message]
    word = session.note_style.paint("error:", "red", "bold")
    lines = [f"{word} {error}"]
    if isinstance(error, SpecError):
        lines += [f"{word} {other}" for other in error.others[:_MORE_ERRORS]]
        hidden = len(error.others) - _MORE_ERRORS
        if hidden > 0:
            lines.append(f"{word} … and {hidden} more")
    return lines


def has_option(args: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a flag is among the arguments, also when they could not be parsed."""
    return any(arg in names for arg in _before_end(args))


def wants_json(args: Sequence[str]) -> bool:
    """Whether JSON was asked for, also when the arguments could not be parsed."""
    words = _before_end(args)
    joined = {"-ojson", "-o=json", "--output=json"}
    pairs = itertools.pairwise(words)
    return any(word in joined for word in words) or any(
        one in {"-o", "--output"} and two == "json" for one, two in pairs
    )


def _before_end(args: Sequence[str]) -> Sequence[str]:
    return args[: args.index("--")] if "--" in args else args
