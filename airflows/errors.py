"""The errors airflows raises on purpose.

Each carries what a person needs in one paragraph (what, where, what to do) and the exit status of the
command line. Foreign exceptions are turned into these at the edge where they happen.
"""

from __future__ import annotations

from typing import ClassVar


class AirflowsError(Exception):
    """Root of all errors raised on purpose.

    Attributes:
        message: what is wrong, one sentence or two.
        file: the file it is about, as the user named it.
        line: line in that file, counted from 1.
        field: dotted key in that file, such as ``compute.num_accelerators``.
        hint: what to do about it.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.field = field
        self.hint = hint

    def __str__(self) -> str:
        """Return the whole paragraph: place, message, hint."""
        place = self.file or ""
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        parts = [part for part in (place, self.field) if part]
        text = f"{': '.join(parts)}: {self.message}" if parts else self.message
        return f"{text} {self.hint}" if self.hint else text


class SpecError(AirflowsError):
    """A train.yaml, sweep.yaml, override or option is wrong; nothing was written or submitted.

    Attributes:
        others: further errors found in the same file, when more than one is known.
    """

    kind = "invalid"
    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str | None = None,
        others: tuple[SpecError, ...] = (),
    ) -> None:
        super().__init__(message, file=file, line=line, field=field, hint=hint)
        self.others = others


class NotFoundError(AirflowsError):
    """No sweep, trial or attempt has the id that was asked for."""

    kind = "not_found"
    exit_code = 2


class ConflictError(AirflowsError):
    """The request contradicts what is already recorded, such as changed code in an attached sweep."""

    kind = "conflict"
    exit_code = 2


class MissingExtraError(AirflowsError):
    """A feature needs a package that an extra of airflows brings."""

    kind = "missing_extra"
    exit_code = 2


class BackendError(AirflowsError):
    """A backend said no, or said nothing."""

    kind = "backend"
    exit_code = 3


class BackendUnavailableError(BackendError):
    """The backend did not answer; nothing is known, nothing has changed. May be retried."""

    kind = "backend_unavailable"


class SubmitError(BackendError):
    """One job was not accepted. `Backend.submit` returns these, one for each such job."""


class SubmitRejectedError(SubmitError):
    """The backend refused the job and always will: the trial fails as invalid."""

    kind = "rejected"


class SubmitUnsentError(SubmitError):
    """The job certainly did not start: it may be submitted again later."""

    kind = "unsent"


class SubmitUnreachedError(SubmitUnsentError):
    """The job certainly did not start, because nobody was reached: there may be room for it all the same."""


class SubmitAmbiguousError(SubmitError):
    """Nobody knows whether the job was accepted: ask `Backend.find` before anything else."""

    kind = "ambiguous"


class LedgerError(AirflowsError):
    """The ledger cannot be read or written."""

    kind = "ledger"
    exit_code = 3


class StaleTrialError(LedgerError):
    """Somebody else moved the trial on since it was read: drop the result and read again."""

    kind = "stale"


class LeaseLostError(LedgerError):
    """This driver's lease was taken over; it must stop without writing anything more."""

    kind = "lease_lost"


class LeaseHeldError(LedgerError):
    """Another driver has the sweep.

    Attributes:
        owner: the holder as text, `host:pid`.
    """

    kind = "lease_held"
    exit_code = 2

    def __init__(self, message: str, *, owner: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.owner = owner


class SchemaTooNewError(LedgerError):
    """The ledger was written by a newer airflows than this one."""

    kind = "schema_too_new"
    exit_code = 2


class TrackingUnavailableError(AirflowsError):
    """MLflow did not answer; nothing is known about metrics. May be retried."""

    kind = "tracking_unavailable"
    exit_code = 3
