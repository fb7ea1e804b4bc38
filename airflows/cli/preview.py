"""`--dry-run`: what a sweep would do, from the files alone. Nothing is written, nothing heavy imported."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflows import ids
from airflows.backends.base import Backend, Packing
from airflows.backends.sharing import require_packing
from airflows.cli.table import number_text, one_line, short_keys, value_text
from airflows.cli.terminal import Session, Style
from airflows.documents import Document, without_passwords
from airflows.errors import AirflowsError
from airflows.home import home_directory
from airflows.keys import effective
from airflows.preview import Hours, accelerator_hours, diff_from_base, domain_text, hours_at_most
from airflows.report.packed import gain_text, planned_gain
from airflows.search.adaptive import require_packages
from airflows.space import expand
from airflows.spec import ADAPTIVE

if TYPE_CHECKING:
    from airflows.sweepfile import LoadedSweep

_SHOWN_POINTS = 100
_SHOWN_LINES = 10
_BATCHED_TRIALS = 10_000
_DEFAULT_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What a sweep may take at most.

    Attributes:
        trials: how many; None when not known.
        attempts: most attempts of a trial that fails by itself; preempted ones come on top.
        hours_once: accelerator-hours when each trial takes one attempt; None without a time limit.
        hours_max: accelerator-hours with all attempts, or the sweep's own limit; None without any.
    """

    trials: int | None
    attempts: int
    hours_once: float | None
    hours_max: float | None


def cost_of(sweep: LoadedSweep) -> Cost:
    """Return what a sweep may take at most."""
    points = expand(sweep).count()
    retries = sweep.spec.retry.max
    if retries is None:
        retries = sweep.base.config.max_retries
    attempts = 1 + (_DEFAULT_RETRIES if retries is None else retries)
    once = accelerator_hours(sweep, points, _hours(sweep))
    caps = [cap for cap in (once and once * attempts, sweep.spec.limits.accelerator_hours) if cap is not None]
    trials = None if points is None else points * len(replicates(sweep))
    return Cost(trials, attempts, once, min(caps, default=None))


def _hours(sweep: LoadedSweep) -> Hours:
    """Return what tells the accelerator-hours of an attempt at most, in the dearest of several places."""
    if sweep.spec.backend["type"] != "burst":
        return hours_at_most
    from airflows.cli.places import hours_of_dearest  # noqa: PLC0415 - a sweep in one place does without

    return hours_of_dearest(sweep.spec.backend)


def replicates(sweep: LoadedSweep) -> list[dict[str, Any]]:
    """Return what each replicate of a point overrides."""
    given = sweep.spec.replicates
    return [{}] if given is None else [{given.key: value} for value in given.values]


def first_trials(sweep: LoadedSweep) -> Iterator[Document]:
    """Yield trials as the sweep would create them."""
    numbers = itertools.count()
    for point in expand(sweep).points():
        for replicate in replicates(sweep):
            yield {"number": next(numbers), "overrides": {**point.overrides, **replicate}}


def backend_document(sweep: LoadedSweep) -> Document:
    """Return where the sweep would run, and what a person should know of that place."""
    from airflows.backends.registry import open_backend  # noqa: PLC0415 - not every preview gets here
    from airflows.cli.batches import files_of  # noqa: PLC0415

    try:
        backend = open_backend(sweep.spec.backend, home_directory())
    except AirflowsError as exc:
        return {"type": sweep.spec.backend["type"], "notes": [str(exc)]}
    reach = backend.reach()
    notes = [*([] if reach.available else [f"it cannot be used now: {reach.why_not}"]), *reach.notes]
    path = sweep.base.path
    try:
        require_packing(sweep.spec.pack, backend)
        notes += backend.check(sweep.base.config, sweep.directory if path is None else path.parent)
    except AirflowsError as exc:
        notes.append(f"a start from here would be refused: {exc}")
    files = files_of(backend, sweep, itertools.islice(first_trials(sweep), _BATCHED_TRIALS))
    known = {"type": backend.name, "notes": list(dict.fromkeys(notes))}
    return known | {"packing": _packing(sweep, backend)} | ({"files": files} if files else {})


def _packing(sweep: LoadedSweep, backend: Backend) -> Document | None:
    """Return what packing would save; None where nothing is packed."""
    points, pack = expand(sweep).count(), sweep.spec.pack
    if pack == 1 or backend.capabilities.packing is Packing.NONE:
        return None
    allocates = backend.capabilities.packing is Packing.ALLOCATIONS
    room = sweep.spec.limits.concurrent or backend.room_for(sweep.base.config) * pack
    trials = None if points is None else points * len(replicates(sweep))
    gain = planned_gain(pack, trials, room, allocates=allocates)
    return None if gain is None else gain.to_dict()


def document_of(sweep: LoadedSweep, *, new: bool = False) -> Document:
    """Return the document of `--dry-run`.

    Args:
        sweep: the sweep.
        new: another sweep would be started, whose id is drawn only then.
    """
    cost = cost_of(sweep)
    trials = list(itertools.islice(first_trials(sweep), _SHOWN_POINTS))
    first = trials[0]["overrides"] if trials else {}
    backend = backend_document(sweep)
    return {
        "sweep": None if new else ids.sweep_id(sweep.spec.name, sweep.definition_digest),
        "trials": cost.trials,
        "replicates": len(replicates(sweep)),
        "duplicates_dropped": expand(sweep).duplicates_dropped,
        "points": trials,
        "known": expand(sweep).known,
        "space": _space_document(sweep),
        "config": without_passwords(effective(sweep.base.tree, first)),
        "accelerator_hours_max": cost.hours_max,
        "accelerator_hours_once": cost.hours_once,
        "warnings": [*map(str, sweep.notices), *_missing(sweep)],
        "packing": backend.pop("packing", None),
        "backend": backend,
    }


def show(session: Session, sweep: LoadedSweep, *, new: bool = False) -> int:
    """Print what would run; return the exit status."""
    document = document_of(sweep, new=new)
    session.answer(document, lines_of(document, sweep, session.style))
    return 0


def lines_of(document: Document, sweep: LoadedSweep, style: Style) -> list[str]:
    """Return the preview for people."""
    many = document["trials"]
    each = document["replicates"]
    points = f" ({many // each} points x {each} replicates)" if each > 1 and many is not None else ""
    head = style.paint(document["sweep"] or sweep.spec.name, "bold")
    trials = "an unknown number of trials" if many is None else f"{many} trial{'s' * (many != 1)}"
    lines = [
        f"{head}: {trials}{points} on {document['backend']['type']}. Nothing was started or written.",
        "",
    ]
    lines += _space_lines(document, style)
    lines += _diff_lines(document, sweep, style)
    lines += ["", _cost_text(cost_of(sweep))]
    if document["packing"]:
        lines.append(f"packed: {gain_text(document['packing'])}")
    dropped = document["duplicates_dropped"]
    if dropped:
        lines.append(f"{dropped} duplicate point{'s' * (dropped != 1)} dropped")
    lines += [f"backend {document['backend']['type']}: {note}" for note in document["backend"]["notes"]]
    lines += [f"{style.paint('warning:', 'yellow')} {text}" for text in document["warnings"]]
    for name, text in document["backend"].get("files", {}).items():
        lines += ["", style.paint(f"--- {name}", "bold"), *text.splitlines()]
    return lines


def _diff_lines(document: Document, sweep: LoadedSweep, style: Style) -> list[str]:
    """Return the first trials, each as what it changes of the base."""
    shown = document["points"][:_SHOWN_LINES]
    names = short_keys(key for trial in shown for key in trial["overrides"])
    width = len(str(shown[-1]["number"])) if shown else 1
    lines = [
        f"  {trial['number']:>{width}}  {_diff_text(trial['overrides'], sweep.base.tree, names)}"
        for trial in shown
    ]
    hidden = None if document["trials"] is None else document["trials"] - len(shown)
    if hidden is None or hidden > 0:
        many = "more" if hidden is None else f"{hidden} more"
        lines.append(style.paint(f"  … and {many}{_chosen_later(document, sweep)}", "dim"))
    return [style.paint("trial  base -> trial", "dim"), *lines]


def _chosen_later(document: Document, sweep: LoadedSweep) -> str:
    """Return which trials nobody can know yet, empty where all are known."""
    known = document["known"]
    if known is None or document["trials"] is None:
        return ""
    first = known * document["replicates"]
    if first >= document["trials"]:
        return ""
    return f": from trial {first} on, {sweep.spec.method} chooses by the values of those before"


def _missing(sweep: LoadedSweep) -> list[str]:
    if sweep.spec.method not in ADAPTIVE:
        return []
    try:
        require_packages(sweep.spec.method)
    except AirflowsError as exc:
        return [str(exc)]
    return []


def _space_document(sweep: LoadedSweep) -> Document | None:
    """Return what each key may be, of a sweep whose points are not all known; else None."""
    if expand(sweep).known is None:
        return None
    return {", ".join(axis.keys): domain_text(axis) for axis in sweep.space.axes}


def _space_lines(document: Document, style: Style) -> list[str]:
    """Return what the points are chosen from, where they are not all known."""
    space = document["space"]
    if not space:
        return []
    width = max(len(name) for name in space)
    lines = [f"  {name:<{width}}  {one_line(text)}" for name, text in space.items()]
    return [style.paint("space", "dim"), *lines, ""]


def _diff_text(overrides: Mapping[str, Any], base: Mapping[str, Any], names: Mapping[str, str]) -> str:
    changes = []
    for change in diff_from_base(base, overrides):
        name, new = names[change.key], one_line(value_text(change.new))
        if change.is_new:
            changes.append(f"{name} {new} (new)")
        elif ids.canonical_json(change.old) != ids.canonical_json(change.new):
            changes.append(f"{name} {one_line(value_text(change.old))} -> {new}")
    return ", ".join(changes) or "as the base"


def _cost_text(cost: Cost) -> str:
    if cost.hours_max is None:
        why = "the train.yaml has no timeout_minutes, and limits no accelerator_hours"
        return f"accelerator-hours: no limit ({why})"
    text = f"at most {number_text(cost.hours_max, 4)} accelerator-hours"
    if cost.hours_once is None or cost.hours_once == cost.hours_max:
        return text
    return f"{text} with up to {cost.attempts} attempts each, {number_text(cost.hours_once, 4)} with one"
