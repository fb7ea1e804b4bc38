"""What a flow run is asked for: its parameters, checked by the model of sweep.yaml. Without Prefect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from airflows import sweepfile
from airflows.engine.source import Replicates
from airflows.errors import NotFoundError, SpecError
from airflows.ids import sweep_id
from airflows.ledger import open_ledger
from airflows.space import expand
from airflows.spec import SweepSpec
from airflows.sweepfile import LoadedSweep
from airflows.vetting import validate_points

MOST_SHOWN = 1000


def _as_given(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    check(value)
    return value


# The model refuses what is wrong and gives Prefect's form its fields. The mapping goes on as it was given:
# the file's own reader then has the last word, with file, key and hint.
SweepParameter = str | Annotated[SweepSpec, WrapValidator(_as_given)]
# How many sweeps the janitor drives at the same time.
AtOnce = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """A sweep as a flow run is asked for it.

    Attributes:
        sweep: path of a sweep.yaml, or the mapping itself; or the id or name of a sweep in the ledger.
        overrides: `KEY=VALUE` changes of the base, as `--override`.
        settings: `KEY=VALUE` changes of the sweep file, as `--set`.
        backend: where it runs, as `--backend`.
        instance: what makes two runs of the same file different sweeps; None is the scheduled time.
        show_trials: mirror the trials as task runs.
    """

    sweep: str | SweepSpec | Mapping[str, Any]
    overrides: Sequence[str] = ()
    settings: Sequence[str] = ()
    backend: str | None = None
    instance: str | None = None
    show_trials: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request, read and checked.

    Attributes:
        id: the sweep's.
        loaded: what to start it from; None for one that is in the ledger.
        instance: what tells it from others of its definition.
        notices: what people should know before the first trial.
    """

    id: str
    loaded: LoadedSweep | None = None
    instance: str = ""
    notices: tuple[str, ...] = ()


def read_request(request: SweepRequest, *, home: Path, instance: str) -> Wanted:
    """Read and check what is asked for; no sweep is written down.

    Args:
        request: the parameters.
        home: `$AIRFLOWS_HOME`.
        instance: in place of the request's, where that names none; not empty.

    Raises:
        SpecError: something is wrong; the message names file, line and key.
        LedgerError: the ledger cannot be read, so nobody knows what the name means.
    """
    known = _recorded(request, home)
    if known is not None:
        return known
    loaded = _loaded(request)
    validate_points(loaded)
    if request.show_trials:
        count = expand(loaded).count()
        refuse_too_many(None if count is None else count * Replicates(loaded.spec).count)
    # An empty one would attach to the newest sweep of any instance.
    chosen = request.instance or instance
    return Wanted(
        sweep_id(loaded.spec.name, loaded.definition_digest, chosen),
        loaded,
        chosen,
        tuple(str(notice) for notice in loaded.notices),
    )


def _loaded(request: SweepRequest) -> LoadedSweep:
    sets, overrides, backend = request.settings, request.overrides, request.backend
    if isinstance(request.sweep, str):
        return sweepfile.load_sweep(Path(request.sweep), sets=sets, overrides=overrides, backend=backend)
    given = request.sweep
    tree = given.model_dump(exclude_unset=True) if isinstance(given, SweepSpec) else given
    return sweepfile.sweep_from_mapping(
        tree, directory=Path.cwd(), file="sweep", sets=sets, overrides=overrides, backend=backend
    )


def _recorded(request: SweepRequest, home: Path) -> Wanted | None:
    """Return the sweep in the ledger that the text names, None when it is a file or names none."""
    name = request.sweep
    if not isinstance(name, str) or os.sep in name or Path(name).is_file():
        return None
    with closing(open_ledger(home)) as ledger:
        try:
            found = ledger.resolve(name)[0].id
        except (NotFoundError, SpecError):
            return None
    if request.overrides or request.settings or request.backend:
        message = f"{found} is in the ledger, so overrides, settings and backend come too late."
        raise SpecError(message, field="sweep", hint=f"See: airflows resume {found} --help")
    return Wanted(found)


def refuse_too_many(total: int | None) -> None:
    """Check that so many trials can be mirrored as task runs.

    Raises:
        SpecError: they are too many, or nobody knows how many.
    """
    if total is None or total > MOST_SHOWN:
        many = "an unknown number of" if total is None else f"{total:,}"
        message = f"It mirrors up to {MOST_SHOWN:,} trials as task runs, and this sweep has {many} trials."
        hint = "Leave it off: the artifacts show progress, trials and winner of a sweep of any size."
        raise SpecError(message, field="show_trials", hint=hint)
