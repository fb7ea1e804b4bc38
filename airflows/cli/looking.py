"""`list` and `get`: what the ledger knows, as rows and as stories."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflows.cli import options, render
from airflows.cli.causes import causes_story, launch_dir, log_files
from airflows.cli.failure import UsageError
from airflows.cli.forecasting import forecast_of
from airflows.cli.places import places_of
from airflows.cli.terminal import Session
from airflows.documents import (
    SWEEP_FILTERS,
    TRIAL_FILTERS,
    Document,
    attempt_document,
    event_document,
    plain,
    sweep_details,
    sweep_row,
    trial_document,
    without_passwords,
)
from airflows.errors import NotFoundError
from airflows.hosts import avoided_hosts
from airflows.relief import relief_in
from airflows.report.accounting import spent_by_trial, total
from airflows.report.packed import gain_of
from airflows.trial import FINAL, State

if TYPE_CHECKING:
    from airflows.cli.lookup import Found
    from airflows.ledger import Ledger, SweepRow

_DEFAULT_LIMIT = 50


def list_all(
    session: Session,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Ended ones too.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Trials instead of sweeps.")] = False,
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", metavar="KEY=GLOB", help="Only rows whose KEY (state, name, …) matches. Repeatable."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Most rows.")] = _DEFAULT_LIMIT,
    remote: Annotated[
        bool,
        typer.Option(
            "--remote", help="Runs as the backends have them now, unknown ones too, as squeue does."
        ),
    ] = False,
    profile: options.Profile = None,
) -> int:
    """List active sweeps and runs, the newest first."""
    from airflows.cli.lookup import existing_ledger  # noqa: PLC0415

    options.use_profile(profile)
    wanted = _filters(filters)
    known = TRIAL_FILTERS if runs else SWEEP_FILTERS
    if not (runs or remote):
        _check_filters(wanted, known)
    ledger = existing_ledger(options.home())
    if remote:
        from airflows.cli.remote import list_remote  # noqa: PLC0415

        return list_remote(session, ledger, options.home(), lambda rows: _first(rows, wanted, limit))
    rows = () if ledger is None else _rows(ledger, everything=everything, runs=runs)
    shown = list(_first(rows, wanted, limit + 1, known))
    is_cut = len(shown) > limit
    del shown[limit:]
    if is_cut:
        session.note(f"There are more than these {limit}; see --limit and --filter.")
    if not shown and not session.is_json:
        session.note(
            f"No {'trials' if runs else 'sweeps'} to show{'' if everything else '; --all shows ended ones'}."
        )
        return 0
    lines = render.trials_lines if runs else render.sweeps_lines
    session.answer({"runs" if runs else "sweeps": shown}, lines(shown, session.style))
    return 0


def _filters(texts: Sequence[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or ()]
    wrong = next(
        (text for text, (key, equals, _) in zip(texts or (), pairs, strict=True) if not (key and equals)),
        None,
    )
    if wrong is not None:
        message = f"--filter {wrong!r} has no `=`."
        raise UsageError(message, hint="Write it like state=failed or name=digits*.")
    return {key: glob for key, _, glob in pairs}


def _rows(ledger: Ledger, *, everything: bool, runs: bool) -> Iterator[Document]:
    for row in ledger.sweeps(active_only=not everything):
        if runs:
            yield from _trials(ledger, row, everything=everything)
        else:
            yield _sweep(ledger, row)


def _trials(ledger: Ledger, row: SweepRow, *, everything: bool) -> Iterator[Document]:
    from airflows.cli.lookup import overrides_of  # noqa: PLC0415

    states = None if everything else [state for state in State if state not in FINAL]
    # Rarely more than the first few are shown.
    for trials in ledger.trials_by_page(row.id, states, size=4 * _DEFAULT_LIMIT):
        overrides = overrides_of(ledger, row, trials)
        for trial in trials:
            yield trial_document(trial, overrides[trial.number])


def _sweep(ledger: Ledger, row: SweepRow) -> Document:
    from airflows.cli.lookup import driver_of  # noqa: PLC0415

    if row.ended_at is None:
        from airflows.engine.results import winning_value  # noqa: PLC0415

        best = winning_value(ledger, row)
    else:
        best = None if row.winner is None else row.winner["value"]
    return sweep_row(row, ledger.counts(row.id), best, driver_of(row))


def _check_filters(wanted: Iterable[str], known: Collection[str]) -> None:
    unknown = next((key for key in wanted if key not in known), None)
    if unknown is not None:
        message = f"--filter {unknown}: no row has such a key."
        more = ", and the overrides of the trials shown" if "trial" in known else ""
        raise UsageError(message, hint=f"There are: {', '.join(sorted(known))}{more}.")


def _first(
    rows: Iterable[Document], wanted: Mapping[str, str], most: int, keys: Collection[str] = ()
) -> Iterator[Document]:
    """Yield the first rows that match.

    Args:
        rows: from the newest on.
        wanted: key to glob.
        most: rows.
        keys: that may be asked for even if there are no rows; overrides and those of rows may be too.

    Raises:
        UsageError: all rows were looked at, and none has such a key.
    """
    known = set(keys)
    for row in rows:
        if most <= 0:
            return
        known |= row.get("overrides", {}).keys() if keys else row.keys()
        if all(_matches(row, key, glob) for key, glob in wanted.items()):
            most -= 1
            yield row
    if known:
        _check_filters(wanted, known)


def _matches(row: Document, key: str, glob: str) -> bool:
    overrides = row.get("overrides", {})
    if key not in row and key not in overrides:
        return False
    value = row[key] if key in row else overrides[key]
    return fnmatchcase("" if value is None else str(plain(value)), glob)


def get(session: Session, wanted: options.AnyId, *, profile: options.Profile = None) -> int:
    """Tell everything known of a sweep, a trial or an attempt."""
    from airflows.cli import strangers  # noqa: PLC0415
    from airflows.cli.lookup import find, reading  # noqa: PLC0415

    options.use_profile(profile)
    try:
        ledger = reading(options.home())
        found = find(ledger, wanted)
    except NotFoundError as exc:
        return strangers.get(session, wanted, options.home(), exc)
    if found.number is None:
        document = sweep_story(ledger, found.row)
        lines = render.sweep_lines(document, session.style)
    else:
        document = trial_story(ledger, found)
        lines = render.trial_lines(document, session.style)
    session.answer(document, lines)
    return 0


def sweep_story(ledger: Ledger, row: SweepRow) -> Document:
    """Return the document of `get SWEEP`."""
    from airflows.cli.lookup import best_value, driver_of  # noqa: PLC0415
    from airflows.cli.remote import waiting_words  # noqa: PLC0415
    from airflows.engine.results import gather  # noqa: PLC0415
    from airflows.yamlio import parse  # noqa: PLC0415

    results = gather(ledger, row)
    spec = parse(row.source, file=row.id, dialect="sweep").value
    shown = sweep_row(row, results.counts, best_value(results), driver_of(row))
    attempts = ledger.attempts(row.id)
    causes = causes_story(ledger, row, attempts)
    by_trial = spent_by_trial(attempts, time.time())
    spent = total(each for own in by_trial.values() for each in own)
    shown["forecast"] = forecast_of(ledger, row, results)
    gain = gain_of(attempts, results.sweep.spec.pack)
    shown["packing"] = None if gain is None else gain.to_dict()
    shown["places"] = places_of(ledger, row, attempts)
    words = Counter(waiting_words(row, ledger.trials(row.id, states=[State.QUEUED]), options.home()))
    shown["waiting"] = [{"detail": detail, "count": count} for detail, count in words.most_common()]
    return shown | sweep_details(spec, results, causes, spent, avoided_hosts(ledger.ended_attempts(row.id)))


def trial_story(ledger: Ledger, found: Found) -> Document:
    """Return the document of `get SWEEP/12`; of an attempt, with that attempt alone."""
    from airflows.cli.lookup import overrides_of  # noqa: PLC0415
    from airflows.cli.remote import waiting_words  # noqa: PLC0415
    from airflows.engine.site import reload  # noqa: PLC0415
    from airflows.keys import effective  # noqa: PLC0415

    row, number = found.row, found.number or 0
    (trial,) = ledger.trials(row.id, numbers=[number])
    overrides = overrides_of(ledger, row, [trial])[number]
    details = ledger.claim_details(row.id, number)
    changed = {attempt: relief_in(detail) for (_, attempt), detail in details.items()}
    made = ledger.attempts(row.id, number)
    spent = spent_by_trial(made, time.time()).get(number, [])
    attempts = [
        attempt_document(
            attempt,
            str(launch_dir(row, attempt)),
            [str(path) for path in log_files(row, attempt)],
            cost,
            changed.get(attempt.attempt, {}),
        )
        for attempt, cost in zip(made, spent, strict=True)
        if found.attempt in {None, attempt.attempt}
    ]
    events = [event for event in ledger.events(row.id, number) if found.attempt in {None, event.attempt}]
    last = attempts[-1]["changed"] if attempts else {}
    config: dict[str, Any] = effective(reload(row).base.tree, {**overrides, **last})
    return {
        **trial_document(trial, overrides),
        **total(spent).to_dict(),
        "waiting": next(iter(waiting_words(row, [trial], options.home())), None),
        "config": without_passwords(config),
        "attempts": attempts,
        "events": [event_document(event) for event in events],
    }
