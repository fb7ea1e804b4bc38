"""`plan`, and `sweep --plan`: what would run, written down with a hash, and run just so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflows.addresses import HIDDEN, is_secret_name
from airflows.cli import options
from airflows.cli.failure import UsageError
from airflows.cli.table import number_text
from airflows.cli.terminal import Session, Style
from airflows.documents import without_passwords

if TYPE_CHECKING:
    from airflows.engine.planned import Planned, Wanted
    from airflows.sweepfile import LoadedSweep

_SHORT = 12


def plan(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sweep.yaml.", readable=False)],
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where the plan is written.", readable=False)
    ] = Path("plan.json"),
    override: options.Override = None,
    sets: options.Set = None,
    backend: options.BackendName = None,
    profile: options.Profile = None,
    new: Annotated[bool, typer.Option("--new", help="For another sweep of the same definition.")] = False,
) -> int:
    """Check a sweep as a start would, say what it costs and what has run, and write plan.json."""
    from airflows.cli.start import profile_sets  # noqa: PLC0415
    from airflows.engine.planned import make_plan  # noqa: PLC0415
    from airflows.sweepfile import load_sweep  # noqa: PLC0415

    changes = [*(sets or ()), *profile_sets(profile, backend)]
    backend = None if profile else backend
    loaded = load_sweep(file, sets=changes, overrides=override or (), backend=backend)
    made_of = {
        "file": str(file.absolute()),
        "override": [_shown(word) for word in override or ()],
        "set": [_shown(word) for word in changes],
        "backend": backend,
    }
    made = make_plan(loaded, home=options.home(), new=new, made_of=made_of)
    made.save(out)
    session.answer({**made.to_dict(), "file": str(out)}, lines_of(made, loaded, file, out, session.style))
    return 0


def _shown(word: str) -> str:
    """Return a KEY=VALUE without its secrets."""
    key, _, _ = word.partition("=")
    _, is_variable, name = key.rpartition("env_variables.")
    # Of a whole mapping it is not looked at which are secrets.
    is_secret = is_secret_name(name) if is_variable else "env_variables" in word
    return f"{key}={HIDDEN}" if is_secret else str(without_passwords(word))


def lines_of(made: Planned, sweep: LoadedSweep, file: Path, out: Path, style: Style) -> list[str]:
    """Return a plan for people."""
    name, where = style.paint(sweep.spec.name, "bold"), sweep.spec.backend["type"]
    dropped = made.duplicates_dropped
    return [
        f"{name}: {_trials_text(made)} on {where}. Nothing was started.",
        *([f"{dropped} duplicate point{'s' * (dropped != 1)} dropped"] if dropped else []),
        *_chosen_later(made, sweep),
        *_history_lines(made, sweep.spec.name, file),
        _estimate_text(made),
        *(f"note: {note}" for note in made.notes),
        *(f"{style.paint('warning:', 'yellow')} {text}" for text in made.warnings),
        "",
        f"plan {style.paint(made.hash, 'bold')} is in {out}",
        f"Run just this: airflows sweep --plan {out}",
        f"           or: airflows sweep {file} --plan {made.hash[:_SHORT]}",
    ]


def _trials_text(made: Planned) -> str:
    many = made.trials
    if many is None:
        return "an unknown number of trials"
    each = made.replicates
    points = f" ({many // each} points x {each} replicates)" if each > 1 else ""
    return f"{many} trial{'s' * (many != 1)}{points}"


def _chosen_later(made: Planned, sweep: LoadedSweep) -> list[str]:
    if made.known is None or (made.trials is not None and made.known * made.replicates >= made.trials):
        return []
    words = (
        f"Its first {made.known} points are known; {sweep.spec.method} chooses the others by the values of"
        " those before. So the plan covers what they are chosen by (space, method, seed), and not them."
    )
    return [words]


def _history_lines(made: Planned, name: str, file: Path) -> list[str]:
    past = made.history
    if not past.sweep:
        return ["none of it has run before"]
    counts = {"succeeded": past.succeeded, "failed": past.failed, "unfinished": past.unfinished}
    words = [f"{count} {word}" for word, count in counts.items() if count]
    new = "others are new" if past.new is None else f"{past.new} new"
    text = f"{', '.join([*words, new])}, as sweep {past.sweep} has it"
    if past.attaches:
        return [f"points: {text}: a start goes on with that one"]
    again = past.succeeded + past.failed + past.unfinished
    if not again:
        return ["none of it has run before"]
    text = f"points: {text}; a start is another sweep and runs all of them"
    # Only to a sweep of the same name a file can be added.
    if past.sweep.rpartition("-")[0] != name:
        return [text]
    return [f"{text}. To keep what it has, add this file to it: airflows resume {past.sweep} --add {file}"]


def _estimate_text(made: Planned) -> str:
    found = made.estimate
    if found.hours is None:
        return (
            "accelerator-hours: unknown (nothing like it has run, and the train.yaml has no timeout_minutes)"
        )
    if found.basis == "timeout":
        how = "at most, by timeout_minutes, with one attempt each; nothing like it has run"
    else:
        how = f"by the median of {found.trials} trials of {found.sweep}"
    left = ""
    if found.left is not None and found.left != found.hours:
        left = f", {number_text(found.left, 4)} of them for what is left to run"
    return f"accelerator-hours: {number_text(found.hours, 4)}{left} ({how})"


def planned_sweep(
    file: Path | None,
    text: str,
    *,
    override: Sequence[str],
    sets: Sequence[str],
    backend: str | None,
) -> tuple[LoadedSweep, Wanted]:
    """Return the sweep that `sweep --plan` starts, as it is now, and the plan that it has to be.

    Args:
        file: the sweep.yaml; None for that of the plan.json, with the changes it was made with.
        text: what `--plan` names.
        override: changes of the base.
        sets: changes of the sweep file.
        backend: in place of the file's.

    Raises:
        UsageError: nothing says which file is meant.
    """
    from airflows.engine.planned import wanted_plan  # noqa: PLC0415
    from airflows.sweepfile import load_sweep  # noqa: PLC0415

    wanted = wanted_plan(text, file)
    if file is not None:
        return load_sweep(file, sets=sets, overrides=override, backend=backend), wanted
    if override or sets or backend:
        message = "--override, --set and --backend are in the plan already, and it takes no others."
        raise UsageError(message, hint="Make another plan with them: airflows plan")
    made_of = wanted.made_of
    if not made_of.get("file"):
        message = f"--plan {text}: no plan.json here tells which sweep.yaml it is of."
        raise UsageError(message, hint=f"Name it: airflows sweep sweep.yaml --plan {text}")
    if any(HIDDEN in word for name in ("override", "set") for word in made_of.get(name, ())):
        message = f"--plan {text}: the plan was made with a secret among its options, which is kept nowhere."
        raise UsageError(message, hint=f"Give them again: airflows sweep {made_of['file']} --plan {text} ...")
    path = Path(made_of["file"])
    loaded = load_sweep(
        path,
        sets=made_of.get("set", ()),
        overrides=made_of.get("override", ()),
        backend=made_of.get("backend"),
    )
    return loaded, wanted
