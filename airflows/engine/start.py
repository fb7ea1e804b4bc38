"""How a sweep comes into the ledger, or is found there: created once, attached to ever after."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from urllib.parse import urlsplit

from airflows import ids
from airflows.backends.base import ChecksSecrets
from airflows.backends.places import Place
from airflows.backends.sharing import require_packing
from airflows.codechanges import CodeChanges
from airflows.edits import Edits, edited
from airflows.engine import record
from airflows.engine.sharing import require_shared_checkpoints
from airflows.engine.site import Site, require_host
from airflows.engine.warmstart import require_search
from airflows.errors import BackendUnavailableError, ConflictError, NotFoundError, SpecError
from airflows.file_system import is_on_network
from airflows.ledger import SweepRow, SweepState, Wish
from airflows.space import expand
from airflows.spec import ADAPTIVE
from airflows.sweepfile import LoadedSweep
from airflows.tracking import Tracker
from airflows.tracking.uris import is_sqlite, sqlite_path
from airflows.yamlio import parse

_TURNS = 3
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Begun:
    """A sweep in the ledger.

    Attributes:
        row: as it stands now.
        is_new: this call made it; else it was there already.
        notices: what people should know before the first trial.
        done: what the call has done beside, empty for nothing.
    """

    row: SweepRow
    is_new: bool
    notices: tuple[str, ...] = ()
    done: str = ""


def begin(
    site: Site, *, now: float, new: bool = False, instance: str = "", code: str = "", plan: str = ""
) -> Begun:
    """Create the sweep, or attach to the newest one with the same name and definition.

    Args:
        site: what the sweep works with.
        now: seconds since the epoch, UTC.
        new: make another sweep of the same definition.
        instance: what names one sweep of the definition, such as an idempotency key.
        code: digest of the code snapshot, empty when the base has no code source.
        plan: hash of the plan that it is started by, empty for none.

    Raises:
        ConflictError: the sweep is there, but with other code, on another backend, or with other limits.
        BackendUnavailableError: its trials are processes of another machine.
    """
    sweep = site.sweep
    found = None if new else attachable(site, now=now, instance=instance, code=code, plan=plan)
    if found is not None:
        return Begun(found, is_new=False)
    instance = uuid.uuid4().hex if new else instance
    row = _new_row(site, now=now, instance=instance, code=code, plan=plan)
    _require_not_lost(site, row.id)
    for turn in range(_TURNS):
        if site.ledger.create_sweep(row):
            return Begun(row, is_new=True)
        there = site.ledger.sweep(row.id)
        if there.definition == sweep.definition_digest and there.instance == row.instance:
            # Two first starts at once: the other one was first.
            _check_same(site, there, code)
            return Begun(there, is_new=False)
        # A given name of a sweep stays: by it the sweep is found again.
        wanted = _id(sweep, instance, turn + 1) if instance else ""
        salt = instance or uuid.uuid4().hex
        row = _new_row(site, now=now, instance=salt, code=code, plan=plan, wanted=wanted)
    message = f"no free id was found for sweep {sweep.spec.name}."
    raise ConflictError(message)


def attachable(site: Site, *, now: float, code: str, instance: str = "", plan: str = "") -> SweepRow | None:
    """Return the sweep that a start goes on with, None when it makes one; the site takes over its edits.

    Args:
        site: what the sweep works with.
        now: seconds since the epoch, UTC.
        code: digest of the code snapshot, empty when the base has no code source.
        instance: what names one sweep of the definition.
        plan: hash of the plan that it is started by, empty for none.

    Raises:
        ConflictError: the sweep is there, but with other code, on another backend, or with other limits.
        BackendUnavailableError: its trials are processes of another machine.
    """
    found = _find(site, instance)
    if found is not None:
        require_host(site.ledger, found, now=now)
        _check_same(site, found, code)
        _take_edits(site, found, plan)
    return found


def _take_edits(site: Site, found: SweepRow, plan: str) -> None:
    """Give the file the points that the sweep has by its earlier files too.

    Raises:
        ConflictError: a plan is to be run, which knows nothing of them.
    """
    edits = Edits.from_text(found.edits)
    if edits and plan:
        message = f"sweep {found.id} was edited (resume --add), so no plan is of it."
        raise ConflictError(message, hint="Plan and start another one with --new.")
    site.sweep = edited(site.sweep, edits)


def _require_not_lost(site: Site, sweep: str) -> None:
    """Check that a sweep never ran here that the ledger does not know: its attempts would be started again.

    Raises:
        ConflictError: it did.
    """
    # In this order: the ledger has a sweep before there is a record of it.
    if not any(record.read(root, sweep) for root in site.roots):
        return
    try:
        site.ledger.sweep(sweep)
    except NotFoundError:
        message = f"sweep {sweep} has run in {site.backend.root}, and the ledger has lost it."
        # What was learnt is lost with the ledger.
        way = "" if site.spec.method in ADAPTIVE else f"Rebuild it: airflows resume {sweep} --rebuild  Or "
        hint = f"{way}start another sweep with --new."
        hint = hint[0].upper() + hint[1:]
        raise ConflictError(message, hint=hint) from None


def _find(site: Site, instance: str) -> SweepRow | None:
    sweep = site.sweep
    newest = site.ledger.newest_of(sweep.spec.name, sweep.definition_digest)
    if not instance:
        return newest
    for turn in range(_TURNS):
        try:
            found = site.ledger.sweep(_id(sweep, instance, turn))
        except NotFoundError:
            break
        if found.instance != instance:
            # Six hex digits may agree by chance.
            continue
        if found.definition != sweep.definition_digest:
            # It has kept the id of its first file. Another one would run that again at every retry.
            message = f"sweep {found.id} was edited (resume --add) since it was started by this file."
            hint = f"Go on with it: airflows resume {found.id}  Or give the file that it has now."
            raise ConflictError(message, hint=hint)
        return found
    # One that was edited to this file has the id of its first one.
    return newest if newest is not None and newest.instance == instance else None


def _id(sweep: LoadedSweep, instance: str, turn: int) -> str:
    """Return the id of a sweep; of a later turn where those before are other sweeps' by chance."""
    salt = f"{instance}/{turn}" if turn else instance
    return ids.sweep_id(sweep.spec.name, sweep.definition_digest, salt)


def _new_row(site: Site, *, now: float, instance: str, code: str, plan: str, wanted: str = "") -> SweepRow:
    sweep = site.sweep
    expansion = expand(sweep)
    count = expansion.count()
    replicates = 1 if sweep.spec.replicates is None else len(sweep.spec.replicates.values)
    return SweepRow(
        id=wanted or _id(sweep, instance, 0),
        name=sweep.spec.name,
        definition=sweep.definition_digest,
        instance=instance,
        source=sweep.source,
        directory=str(sweep.directory),
        backend=site.backend.name,
        root=str(site.backend.root),
        code=code,
        single=sweep.is_single,
        wish=Wish.RUN,
        requests=0,
        state=SweepState.RUNNING,
        message="",
        halted="",
        expanded=0,
        exhausted=False,
        total=None if count is None else count * replicates,
        created_at=now,
        resumed_at=None,
        ended_at=None,
        tracking_uri=site.tracker.uri,
        experiment_id="",
        parent_run_id="",
        winner=None,
        lease_owner="",
        lease_token="",
        lease_since=None,
        lease_until=None,
        doubt_until=0.0,
        nonce=uuid.uuid4().hex,
        host=site.host,
        plan=plan,
    )


def _check_same(site: Site, found: SweepRow, code: str) -> None:
    ways = (
        f"Start another sweep with --new, or go on with this one: airflows resume {found.id}"
        " (--failed retries what failed, --set changes limits)."
    )
    if found.backend != site.backend.name:
        message = f"sweep {found.id} runs on backend {found.backend}, and you ask for {site.backend.name}."
        raise ConflictError(message, hint=ways)
    require_same_code(site, found, code, ways)
    if found.source != site.sweep.source:
        names = ", ".join(changed_keys(found.source, site.sweep.source))
        message = f"the file differs from that of sweep {found.id}, which has the same points: {names}."
        if "objective" in names:
            ways += f" What ran is ranked by another metric with airflows results {found.id} --metric METRIC."
        raise ConflictError(message, hint=ways)
    require_same_store(site.tracker, found)


def require_same_code(site: Site, found: SweepRow, code: str, ways: str) -> None:
    """Check that the code is that which the sweep's trials run.

    Args:
        site: what the sweep works with.
        found: the sweep.
        code: digest of the code as it is.
        ways: what to do about it, for people.

    Raises:
        ConflictError: it is not; the message names files.
    """
    if found.code != code and (changes := site.code_changes(found.code, code)) != CodeChanges():
        what = f": {changes}" if changes else ""
        message = f"the code has changed since sweep {found.id} was started{what}."
        raise ConflictError(message, hint=f"{ways} Files that .gitignore names do not count as code.")


def changed_keys(recorded: str, now: str) -> list[str]:
    """Return the top-level keys that differ between two sweep files."""
    one, other = (parse(text, file="sweep.yaml", dialect="sweep").value for text in (recorded, now))
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def require_same_store(tracker: Tracker, row: SweepRow) -> None:
    """Check that metrics would be read from the MLflow that the sweep's runs are in.

    Raises:
        ConflictError: it is another one.
    """
    if row.tracking_uri != tracker.uri:
        message = f"sweep {row.id} has its runs in MLflow at {row.tracking_uri}, and not at {tracker.uri}."
        hint = (
            "Set MLFLOW_TRACKING_URI (or tracking.uri) to where they are, or start another sweep with --new."
        )
        raise ConflictError(message, hint=hint)


def require_backend(site: Site, *, new: bool = False, known: bool = False) -> tuple[str, ...]:
    """Check that the backend can run the base and that MLflow answers, before anything is written.

    Args:
        site: what the sweep works with.
        new: another sweep of the same definition is about to be made.
        known: the sweep is in the ledger, so that of several places one that answers is enough.

    Returns:
        What people should know before the first trial.

    Raises:
        SpecError: the base can never run there.
        BackendUnavailableError: the backend cannot be used now.
        TrackingUnavailableError: MLflow does not answer.
    """
    require_packing(site.spec.pack, site.backend)
    notes = _require_reach(site, known=known)
    notes += site.backend.check(site.sweep.base.config, site.base_dir)
    for place in site.places:
        _require_server(site, place)
        _require_secrets(site, place)
    require_shared_checkpoints(site.spec.checkpoint, site.places, site.base_dir)
    _require_own_compute(site)
    site.tracker.check()
    notes += _notes_on_store(site)
    notes += require_search(site, new=new)
    if site.service is not None and site.spec.tracking.experiment:
        where = f"on {site.backend.name} the MLflow experiment is named after experiment_name"
        notes.append(f"tracking.experiment is not used: {where}.")
    is_here = any(not place.own.capabilities.uploads for place in site.places)
    if site.sweep.base.config.code_source is None and is_here:
        where = f"The command runs in {site.base_dir}, since no code_source is given"
        notes.append(f"{where}: on AI Runtime it would run in an empty directory.")
    return tuple(notes)


def _require_reach(site: Site, *, known: bool) -> list[str]:
    """Check that the backend can be used now; return which of its places cannot, where others do.

    Raises:
        BackendUnavailableError: it cannot.
    """
    reach = site.backend.reach()
    if reach.available:
        return []
    why_not = {} if not known else {p.name: p.own.reach().why_not for p in site.places}
    if known and not all(why_not.values()):
        return [
            f"place {name} cannot be used now: {why} What is there stays there."
            for name, why in why_not.items()
            if why
        ]
    message = f"backend {site.backend.name} cannot be used: {reach.why_not}"
    raise BackendUnavailableError(message, hint="`airflows backends` shows what can.")


def _require_server(site: Site, place: Place) -> None:
    """Check that MLflow is no file of this machine where trials see none of its disks.

    Raises:
        SpecError: it is.
    """
    if place.own.capabilities.uploads and is_sqlite(site.tracker.uri):
        where = sqlite_path(site.tracker.uri)
        message = f"trials on {place.name} cannot log to the embedded MLflow store {where}."
        hint = (
            "Set MLFLOW_TRACKING_URI (or tracking.uri) to an MLflow server that they reach, or"
            " `tracking: {uri: none}` for no metrics and no winner."
        )
        raise SpecError(message, field="tracking.uri", hint=hint)


def _require_secrets(site: Site, place: Place) -> None:
    """Check that MLflow's credentials get to trials.

    Raises:
        SpecError: they do not.
    """
    names = site.tracker.job_secrets()
    hint = place.own.secret_hint(names) if names and isinstance(place.own, ChecksSecrets) else ""
    if hint:
        message = f"trials on {place.name} would not get MLflow's credentials ({', '.join(names)})."
        raise SpecError(message, field="backend", hint=hint)


def _require_own_compute(site: Site) -> None:
    """Check that no place overrides what the sweep varies: its trials would not be what they are called.

    Raises:
        SpecError: one does.
    """
    space, spec = site.sweep.space, site.spec
    varied = {key for axis in space.axes for key in axis.keys} | {key for row in space.include for key in row}
    varied |= set(spec.retry.on_out_of_memory or ()) | ({spec.replicates.key} if spec.replicates else set())
    for place in site.places:
        for key in sorted(f"compute.{name}" for name in place.compute):
            if key in varied or "compute" in varied:
                message = f"{key} differs between the trials, and the place {place.name} gives it a value."
                raise SpecError(message, field="backend", hint="Leave it out of one of the two.")


def _notes_on_store(site: Site) -> list[str]:
    """Return what people should know of a store that other machines may not reach as it is named."""
    host = urlsplit(site.tracker.uri).hostname
    if any(place.own.capabilities.uploads for place in site.places) and host in _LOOPBACK:
        note = (
            f"MLflow is at {host}, which is another machine for each trial. Name the address that trials"
            " reach, unless the backend's options give them one."
        )
        return [note]
    if not is_sqlite(site.tracker.uri) or all(place.own.capabilities.shares_host for place in site.places):
        return []
    path = sqlite_path(site.tracker.uri)
    where = f"a file on {'a network file system' if is_on_network(path) else 'a disk of this machine'}"
    risk = (
        "SQLite is not safe there: runs that log at once may fail, or damage it"
        if is_on_network(path)
        else "nodes that do not see it under this path cannot log"
    )
    way = "Set MLFLOW_TRACKING_URI to an MLflow server"
    return [f"Every node logs to the embedded MLflow store {path}, {where}; {risk}. {way}."]
