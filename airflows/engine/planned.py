"""`airflows plan`: what a start would check and run, with a hash by which just that can be started."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflows import ids
from airflows.engine.estimate import Estimate, History, estimate_of, history_of
from airflows.engine.site import Site, open_site
from airflows.engine.start import attachable, require_backend
from airflows.errors import AirflowsError, ConflictError, NotFoundError, SpecError
from airflows.ledger import Ledger
from airflows.plans import Plan, plan_differences
from airflows.sweepfile import LoadedSweep
from airflows.tracking.uris import choose_uri, embedded_uri
from airflows.vetting import validate_points

FILE_NAME = "plan.json"
_HASH = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what a person wants to know before signing it.

    Attributes:
        plan: what will run.
        sweep: id of the sweep that a start would make or attach to; None where it is drawn only then.
        trials: how many; None when nobody can know.
        replicates: of each point.
        duplicates_dropped: points that the file names again.
        known: points that are chosen already by a method that learns; None where all are known.
        estimate: what it is likely to cost.
        history: what of it has run before.
        warnings: what people should know of the file.
        notes: what people should know of the place.
        snapshot: digest of its code as it was kept, empty where the base names none.
        made_of: the words by which `sweep` finds the file again.
    """

    plan: Plan
    sweep: str | None
    trials: int | None
    replicates: int
    duplicates_dropped: int
    known: int | None
    estimate: Estimate
    history: History
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    snapshot: str = ""
    made_of: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """64 hex digits over all that decides what runs."""
        return self.plan.hash

    def to_dict(self) -> dict[str, Any]:
        """Return the document of plan.json."""
        document = self.plan.to_document()
        return {
            "plan": document.pop("plan"),
            "hash": document.pop("hash"),
            "sweep": self.sweep,
            "trials": self.trials,
            "replicates": self.replicates,
            "duplicates_dropped": self.duplicates_dropped,
            "known": self.known,
            "estimate": self.estimate.to_dict(),
            "history": self.history.to_dict(),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "snapshot": self.snapshot or None,
            "made_of": dict(self.made_of),
            **document,
        }

    def save(self, path: Path) -> None:
        """Write plan.json, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        made_of = dict(self.made_of)
        if made_of.get("file"):
            # Beside its files the plan may be moved with them.
            made_of["file"] = os.path.relpath(made_of["file"], path.absolute().parent)
        document = {**self.to_dict(), "made_of": made_of}
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            # Only for its owner: what it says of a sweep may be no one else's business.
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


def make_plan(
    sweep: LoadedSweep, *, home: Path, new: bool = False, made_of: Mapping[str, Any] | None = None
) -> Planned:
    """Check a sweep as a start would, and return what it would run. Nothing is started.

    Args:
        sweep: the sweep.
        home: `$AIRFLOWS_HOME`; a copy of the code is kept there or at the backend's root, as by a start.
        new: another sweep of the same definition would be started.
        made_of: the words by which `sweep` finds the file again.

    Raises:
        SpecError: something in the file is wrong.
        ConflictError: the sweep is there, but was edited, or with other code or settings.
        BackendUnavailableError: the backend cannot be used.
        TrackingUnavailableError: MLflow does not answer.
    """
    validate_points(sweep)
    site = open_site(sweep, home)
    try:
        notes = require_backend(site, new=new)
        code = site.prepare_code()
        plan = plan_of(site, code)
        if not new:
            attachable(site, now=time.time(), code=code, plan=plan.hash)
        history = history_of(site.ledger, sweep, new=new)
        estimate = estimate_of(site.ledger, sweep, history)
        made_id = None if new else _free_id(site.ledger, sweep)
    finally:
        site.ledger.close()
    replicates = 1 if sweep.spec.replicates is None else len(sweep.spec.replicates.values)
    count = sweep.expansion.count()
    return Planned(
        plan=plan,
        sweep=history.sweep if history.attaches else made_id,
        trials=None if count is None else count * replicates,
        replicates=replicates,
        duplicates_dropped=sweep.expansion.duplicates_dropped,
        known=sweep.expansion.known,
        estimate=estimate,
        history=history,
        warnings=[str(notice) for notice in sweep.notices],
        notes=notes,
        snapshot=code,
        made_of=made_of or {},
    )


def _free_id(ledger: Ledger, sweep: LoadedSweep) -> str | None:
    """Return the id that a new sweep gets; None when an edited one has that already."""
    wanted = ids.sweep_id(sweep.spec.name, sweep.definition_digest)
    try:
        ledger.sweep(wanted)
    except NotFoundError:
        return wanted
    return None


def plan_of(site: Site, code: str) -> Plan:
    """Return the plan of a sweep.

    Args:
        site: what the sweep works with.
        code: digest of its code as it was kept, empty where the base names none.

    Raises:
        SpecError: its points have code of their own, which is packed only when they are launched.
    """
    space, spec = site.sweep.space, site.spec
    varied = {key for axis in space.axes for key in axis.keys} | {key for row in space.include for key in row}
    varied |= set(() if spec.replicates is None else (spec.replicates.key,))
    swept = sorted(key for key in varied if f"{key}.".startswith("code_source."))
    if swept:
        message = f"a plan is over one code, and {swept[0]} differs between the points."
        hint = "Plan a sweep for each code, or start this one without a plan."
        raise SpecError(message, field="space", hint=hint)
    names_store = site.spec.tracking.uri is not None or site.service is not None
    mlflow = "" if names_store else choose_uri(None, os.environ, site.home)
    mlflow = "" if mlflow == embedded_uri(site.home) else mlflow
    runs_in_place = site.sweep.base.config.code_source is None and not site.backend.capabilities.uploads
    directory = str(site.base_dir) if runs_in_place else ""
    return Plan.of(site.sweep, code=site.code_identity(code), directory=directory, mlflow=mlflow)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A plan that is to be run, and nothing else.

    Attributes:
        hash: its hash, or how that begins.
        plan: itself, where there is a plan.json of it.
        file: that file.
        snapshot: digest of its code as it was kept.
        made_of: the words by which it finds the sweep file again.
    """

    hash: str
    plan: Plan | None = None
    file: str = ""
    snapshot: str = ""
    made_of: Mapping[str, Any] = field(default_factory=dict)

    def require(self, site: Site, code: str) -> str:
        """Return the hash of what is about to start.

        Raises:
            ConflictError: it is not what was planned; the message names what differs.
        """
        now = plan_of(site, code)
        if now.hash.startswith(self.hash):
            return now.hash
        if self.plan is None:
            message = f"this is not plan {self.hash}: its hash is {now.hash[:12]}."
            hint = (
                "What differs is told where the plan.json is: name it with --plan FILE, or look at it with"
                " `airflows plan`."
            )
            raise ConflictError(message, hint=hint)
        differs = plan_differences(self.plan, now)
        words = [_code_words(site, self.snapshot, code) if each == "code" else each for each in differs]
        message = f"this is not what {self.file} says ({self.plan.hash[:12]}): {'; '.join(words)}."
        hint = "Nothing was started. Put it back, or make a new plan: airflows plan"
        raise ConflictError(message, hint=f"{hint} {self.made_of.get('file') or 'sweep.yaml'}")


def require_planned(sweep: LoadedSweep, wanted: Wanted, *, home: Path, new: bool = False) -> None:
    """Check that a sweep is what was planned, and could start; nothing is started.

    Args:
        sweep: as it is now.
        wanted: the plan.
        home: `$AIRFLOWS_HOME`.
        new: another sweep of the same definition would be started.

    Raises:
        ConflictError: it is not; the message names what differs.
    """
    site = open_site(sweep, home)
    try:
        require_backend(site, new=new)
        wanted.require(site, site.prepare_code())
    finally:
        site.ledger.close()


def _code_words(site: Site, before: str, now: str) -> str:
    changes = site.code_changes(before, now)
    return f"code: {changes}" if changes else "code: other files than were planned"


def wanted_plan(text: str, beside: Path | None) -> Wanted:
    """Return the plan that `--plan` names.

    Args:
        text: a plan.json, or the hash of a plan, at least eight digits of it.
        beside: a sweep file; its directory and the working directory may hold the plan.json of the hash.

    Raises:
        SpecError: it is neither, or the file is damaged.
    """
    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        return _read(path)
    wanted = text.lower()
    if not _HASH.fullmatch(wanted):
        message = f"{text} is neither a plan.json nor the hash of a plan (8 to 64 hex digits)."
        raise SpecError(message, file="--plan", hint="`airflows plan sweep.yaml` prints it.")
    places = [Path(FILE_NAME), *([] if beside is None else [beside.parent / FILE_NAME])]
    for place in places:
        try:
            found = _read(place)
        except AirflowsError:
            continue
        if found.hash.startswith(wanted):
            return replace(found, hash=wanted)
    return Wanted(wanted)


def _read(path: Path) -> Wanted:
    try:
        document = json.loads(path.read_bytes())
    except OSError as exc:
        message = f"it cannot be read: {exc.strerror or exc}."
        raise SpecError(message, file=str(path), hint="Make it with: airflows plan sweep.yaml") from exc
    except ValueError as exc:
        message = "it is no JSON."
        raise SpecError(message, file=str(path), hint="Make it with: airflows plan sweep.yaml") from exc
    if not isinstance(document, dict):
        document = {}
    plan = Plan.from_document(document, file=str(path))
    made_of = dict(document.get("made_of") or {})
    if made_of.get("file"):
        made_of["file"] = os.path.normpath(path.parent / made_of["file"])
    return Wanted(plan.hash, plan, str(path), str(document.get("snapshot") or ""), made_of)
