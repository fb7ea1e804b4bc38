"""`search.warm_start`: what earlier sweeps have found out, as far as it is about the same space."""

from __future__ import annotations

from dataclasses import replace

from airflows.engine.outcomes import aims_of, outcome_of
from airflows.engine.results import scored_trials
from airflows.engine.site import Site, reload
from airflows.errors import SpecError
from airflows.ledger import Ledger, SweepRow
from airflows.ranking import Scored
from airflows.search.adaptive import Past, require_packages
from airflows.search.coding import Coding
from airflows.spec import ADAPTIVE, SweepSpec
from airflows.sweepfile import LoadedSweep

_FIELD = "search.warm_start"


def require_search(site: Site, *, new: bool = False) -> tuple[str, ...]:
    """Check that an adaptive method has what it needs, before anything is written.

    Args:
        site: what the sweep works with.
        new: another sweep of the same definition is about to be made.

    Returns:
        What people should know before the first trial.

    Raises:
        MissingExtraError: a package it needs is not installed.
        SpecError: there is no MLflow to read values from, or an earlier sweep is not of its kind.
    """
    method = site.spec.method
    if method not in ADAPTIVE:
        return ()
    require_packages(method)
    if site.tracker.is_off:
        message = f"search.method {method} learns from metrics, and tracking.uri is none."
        raise SpecError(message, field="tracking.uri", hint="Leave it out, or use random or sobol.")
    known = None if new else site.ledger.newest_of(site.spec.name, site.sweep.definition_digest)
    if not site.spec.search.warm_start or (known is not None and known.expanded):
        # What was taken over is kept with the sweep.
        return ()
    found = len(past_of(site.ledger, site.sweep))
    return (f"{method} starts from {found} finished points of {', '.join(site.spec.search.warm_start)}.",)


def past_of(ledger: Ledger, sweep: LoadedSweep) -> list[Past]:
    """Return the finished points of the earlier sweeps that are points of this one's space.

    A key that is in the space of only one of the two has to have the other's value of its base.

    Raises:
        SpecError: there is no such sweep, or it had another objective.
    """
    found: list[Past] = []
    for text in sweep.spec.search.warm_start:
        row = _earlier(ledger, sweep, text)
        earlier = reload(row)
        _require_same_objectives(sweep.spec, earlier.spec, text)
        found += _points_of(ledger, row, earlier, sweep)
    return found


def _earlier(ledger: Ledger, sweep: LoadedSweep, text: str) -> SweepRow:
    for row in ledger.sweeps():
        # A name means the newest other sweep of it.
        is_named = row.name == text and row.definition != sweep.definition_digest
        if row.id == text or (is_named and not row.single):
            return row
    message = f"there is no earlier sweep {text!r}."
    raise SpecError(message, field=_FIELD, hint="`airflows list --all` shows those there are.")


def _require_same_objectives(spec: SweepSpec, earlier: SweepSpec, text: str) -> None:
    here, there = ([f"{each.goal} {each.metric}" for each in one.all_objectives] for one in (spec, earlier))
    if here != there:
        was = " and ".join(there) or "none"
        message = f"the objective of {text} was {was}, and here it is {' and '.join(here)}."
        raise SpecError(message, field=_FIELD, hint="Name sweeps with the same metric and goal.")


def _points_of(ledger: Ledger, row: SweepRow, earlier: LoadedSweep, sweep: LoadedSweep) -> list[Past]:
    own = [objective.constraints for objective in sweep.spec.all_objectives]
    aims = [replace(a, constraints=own[at]) for at, a in enumerate(aims_of(earlier.spec))]
    objectives = [
        old.model_copy(update={"constraints": new})
        for old, new in zip(earlier.spec.all_objectives, own, strict=True)
    ]
    groups: dict[int, list[Scored]] = {}
    for trial in scored_trials(ledger, row, *objectives):
        groups.setdefault(trial.point, []).append(trial)
    coding = Coding(sweep.space, sweep.base.tree)
    found: list[Past] = []
    for members in groups.values():
        if not all(member.state.is_final for member in members):
            continue
        outcome = outcome_of(aims, members)
        made = coding.translated(members[0].overrides, earlier.base.tree)
        if outcome.state == "complete" and made is not None:
            found.append(Past(made, outcome))
    return found
