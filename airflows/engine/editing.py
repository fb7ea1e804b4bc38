"""`resume --add`: the points of another sweep file, added to a sweep that is there; whole, or not at all.

Only the decision is written: which file the sweep has from now on, which points are orphaned, and which
trials the next driver cancels. It makes the new points as it makes all others: lazily, behind those before.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflows.drivers import current_owner
from airflows.edits import Difference, Edits, Made, difference
from airflows.engine.drive import Drive
from airflows.engine.driver import LEASE_TTL_S
from airflows.engine.observers import Observer, Silent
from airflows.engine.operations import Driven
from airflows.engine.reopen import going_on, reopen, reopened
from airflows.engine.site import Site, open_site, reload, require_host
from airflows.engine.source import Replicates
from airflows.engine.start import Begun, changed_keys, require_backend, require_same_code, require_same_store
from airflows.engine.unmoved import require_same_backend
from airflows.errors import ConflictError
from airflows.ids import canonical_json
from airflows.ledger import Change, Ledger, SweepRow, SweepState, Wish, open_ledger
from airflows.plans import changed_leaves
from airflows.spec import ADAPTIVE
from airflows.sweepfile import LoadedSweep
from airflows.trial import State, Trial

_POINTS = frozenset({"space", "include", "exclude", "search"})
_FEW = 5


@dataclass(slots=True)
class Adding:
    """A sweep and another file for it, looked at and not yet changed.

    Attributes:
        site: what the sweep works with, by the new file.
        row: the sweep as it was looked at.
        code: digest of the code of its attempts.
        difference: what the new file makes of it.
        settings: keys of the file that change beside its points.
        again: trials of kept points that were cancelled with the sweep, and run now.
    """

    site: Site
    row: SweepRow
    difference: Difference
    settings: Sequence[str]
    again: int = 0

    @property
    def is_made(self) -> bool:
        """Whether the sweep has this file already."""
        return self.row.source == self.site.sweep.source

    def write(self, *, now: float) -> SweepRow:
        """Write the edit, in one transaction; one that was made before is not made again.

        Raises:
            LeaseHeldError: somebody drives the sweep.
            ConflictError: somebody else has edited it since it was looked at.
        """
        if self.is_made:
            self.site.sweep = reload(self.row)
            return reopen(self.site, self.row, failed=False, code=self.row.code, now=now)
        ledger, sweep = self.site.ledger, self.row.id
        lease = ledger.hold(sweep, current_owner(), now=now, ttl_s=LEASE_TTL_S, token=uuid.uuid4().hex)
        try:
            row = ledger.sweep(sweep)
            if (row.source, row.edits) != (self.row.source, self.row.edits):
                message = f"sweep {sweep} was changed while this was decided."
                raise ConflictError(message, hint="Look at the difference again: --dry-run")
            # Trials may have gone out since it was looked at.
            require_same_backend(self.site, row)
            trials = ledger.trials(sweep)
            found = _difference(ledger, row, self.site.sweep, trials)
            ledger.edit(lease, **_written(self.site, row, found, trials, now))
        finally:
            ledger.release(lease)
        row = ledger.sweep(sweep)
        self.site.sweep = reload(row)
        return row

    def run(
        self,
        *,
        observer: Observer | None = None,
        drive: bool = True,
        on_begun: Callable[[Begun, Drive], None] = lambda _begun, _drive: None,
    ) -> Driven:
        """Write the edit, and drive the sweep to its end.

        Args:
            observer: is told what happens.
            drive: False leaves the driving to somebody else.
            on_begun: is called once the edit is in the ledger, with the drive that can be paused.

        Raises:
            LeaseHeldError: somebody drives the sweep.
            ConflictError: somebody else has edited it since it was looked at.
        """
        done = f"{self.row.id} has these points already, and goes on." if self.is_made else ""
        row = self.write(now=time.time())
        driving = Drive(self.site, observer or Silent())
        on_begun(Begun(row, is_new=False, done=done), driving)
        return Driven(driving.run(row.id) if drive else row, is_new=False)


@contextmanager
def adding(sweep: str, new: LoadedSweep, *, home: Path) -> Iterator[Adding]:
    """Look at what another file makes of a sweep; nothing is changed before `run`.

    Args:
        sweep: id or name.
        new: the file, its points checked.
        home: `$AIRFLOWS_HOME`.

    Raises:
        NotFoundError: no such sweep.
        ConflictError: it would be another sweep, or runs other code.
        BackendUnavailableError: the backend cannot be used, or the trials are another machine's.
    """
    with closing(open_ledger(home, create=False)) as ledger:
        row, _, _ = ledger.resolve(sweep)
        require_host(ledger, row, now=time.time())
    require_same_sweep(row, reload(row), new)
    site = open_site(new, home, row=row)
    try:
        require_backend(site)
        require_same_store(site.tracker, row)
        require_same_backend(site, row)
        way = f"Put it back, or start another sweep: airflows sweep FILE --new ({row.id} stays as it is)."
        require_same_code(site, row, site.prepare_code(), way)
        yield look(site, row)
    finally:
        site.ledger.close()


def look(site: Site, row: SweepRow) -> Adding:
    """Return a sweep with another file for it, by which its site was opened."""
    trials = site.ledger.trials(row.id)
    found = _difference(site.ledger, row, site.sweep, trials)
    orphaned = frozenset(found.orphaned)
    again = sum(trial.point not in orphaned for trial in _cancelled_with(row, trials))
    changed = [key for key in changed_keys(row.source, site.sweep.source) if key not in _POINTS]
    return Adding(site, row, found, changed, again)


def _difference(ledger: Ledger, row: SweepRow, new: LoadedSweep, trials: Sequence[Trial]) -> Difference:
    still_open = {trial.point for trial in trials if not trial.state.is_final}
    made = (Made(p.number, p.overrides, p.number not in still_open) for p in ledger.points(row.id))
    return difference(made, reload(row), new, Edits.from_text(row.edits), row.expanded)


def _cancelled_with(row: SweepRow, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that were cancelled with their whole sweep."""
    is_cancelled = row.state is SweepState.CANCELLED
    return [trial for trial in trials if is_cancelled and trial.state is State.CANCELLED]


def _written(
    site: Site, row: SweepRow, found: Difference, trials: Sequence[Trial], now: float
) -> dict[str, Any]:
    """Return what `Ledger.edit` takes."""
    is_back, is_gone = frozenset(found.back), frozenset(found.orphaned)
    changes: list[Change] = []
    again = {trial.number for trial in _cancelled_with(row, trials) if trial.point not in is_gone}
    for trial in trials:
        is_wanted = trial.point in is_back or (row.wish is Wish.STOP and trial.point not in is_gone)
        if is_wanted and trial.state is State.STOPPING:
            message = f"trial {trial.id} is in the file, but is still being cancelled."
            raise ConflictError(message, hint=f"Let that end first: airflows resume {row.id}")
        if trial.state is State.CANCELLED and (trial.point in is_back or trial.number in again):
            changes.append(reopened(row, trial, now))
    still_open = [trial for trial in trials if not trial.state.is_final]
    return {
        **going_on(site, row.code, now),
        "changes": changes,
        "cancel": [trial.number for trial in still_open if trial.point in is_gone],
        "keep": [trial.number for trial in still_open if trial.point in is_back],
        "definition": site.sweep.definition_digest,
        "edits": found.edits.to_text(),
        "exhausted": False,
        "total": len(trials) + found.added * Replicates(site.spec).count,
    }


def require_same_sweep(row: SweepRow, present: LoadedSweep, new: LoadedSweep) -> None:
    """Check that a file differs from its sweep only in its points, and in what may change anyway.

    Raises:
        ConflictError: it does not; the message names what differs.
    """
    if row.single:
        message = f"{row.id} is a single run, which has no points to add to."
        raise ConflictError(message, hint="Start a sweep: airflows sweep FILE")
    for spec in (present.spec, new.spec):
        if spec.method in ADAPTIVE:
            message = (
                f"search.method {spec.method} chooses each point by the values of those before, in the space"
                f" that it began with, so nothing can be added to it."
            )
            hint = (
                f"More of its points: airflows resume {row.id} --trials N  Another space: a sweep of its own,"
                f" with search.warm_start: [{row.id}]."
            )
            raise ConflictError(message, hint=hint)
    differs = [*_base_differs(present, new), *_spec_differs(present, new)]
    if differs:
        message = f"this file is not that of sweep {row.id}: {'; '.join(differs)}."
        hint = (
            "Only its points may differ, and settings such as limits. Start another one: airflows sweep FILE"
        )
        raise ConflictError(message, hint=hint)


def _base_differs(present: LoadedSweep, new: LoadedSweep) -> Iterator[str]:
    changed = [key for key, _, _ in changed_leaves(present.base.tree, new.base.tree)]
    if changed:
        more = f" and {len(changed) - _FEW} more" if len(changed) > _FEW else ""
        yield f"its base differs in {', '.join(changed[:_FEW])}{more}"


def _spec_differs(present: LoadedSweep, new: LoadedSweep) -> Iterator[str]:
    if present.spec.name != new.spec.name:
        yield f"its name is {new.spec.name}"
    kinds = {"objective", "objectives", "replicates", "tracking"}
    one, other = (loaded.spec.model_dump(include=kinds) for loaded in (present, new))
    yield from (
        f"its {key} differs"
        for key in sorted(kinds)
        if canonical_json(one[key]) != canonical_json(other[key])
    )
    if present.spec.backend["type"] != new.spec.backend["type"]:
        yield f"its backend is {new.spec.backend['type']}"
