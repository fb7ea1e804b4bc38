"""`stop-check`: what a stopping rule would have done to a sweep that has run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from airflows.cli import options
from airflows.cli.table import number_text, table
from airflows.cli.terminal import Session, Style
from airflows.documents import Document

if TYPE_CHECKING:
    from airflows.engine.whatif import WhatIf

_MOST_ROWS = 20


def stop_check(
    session: Session,
    sweep_id: options.SweepId,
    *,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="KEY=VALUE", help="A key of `stop`, or a method alone. Repeatable."),
    ] = None,
) -> int:
    """Say what a stopping rule would have saved, and whether it would have lost the winner."""
    from airflows.cli.lookup import reading, the_sweep  # noqa: PLC0415
    from airflows.cli.outcome import tracker_of  # noqa: PLC0415
    from airflows.engine.results import gather  # noqa: PLC0415
    from airflows.engine.whatif import what_if  # noqa: PLC0415

    home = options.home()
    ledger = reading(home)
    found = gather(ledger, the_sweep(ledger, sweep_id))
    made = what_if(ledger, found, tracker_of(found, home), stop or [])
    document = _document(made)
    session.answer(document, _lines(document, session.style))
    return 0


def _document(made: WhatIf) -> Document:
    replay = made.replay
    winners = [number for group in made.winner for number in group.trials]
    kept = made.best_kept
    return {
        "sweep": made.row.id,
        "stop": {"metric": made.setting.metric, "goal": made.setting.goal, **made.given},
        "trials": replay.trials,
        "stopped": [
            {
                "trial": f"{made.row.id}/{n}",
                "number": n,
                "step": stop.step,
                "value": stop.value,
                "why": stop.words,
            }
            for n, stop in replay.stops.items()
        ],
        "steps": {"total": replay.steps, "saved": replay.steps_saved, "share": replay.share_saved},
        "accelerator_hours": {
            "total": replay.accelerator_s / 3600,
            "saved": replay.accelerator_s_saved / 3600,
        },
        "winner": None if not winners else {"trials": winners, "lost": list(replay.lost)},
        "best_kept": None if kept is None else {"trials": list(kept.trials), "value": kept.value},
    }


def _lines(document: Document, style: Style) -> list[str]:
    rule = " ".join(f"{key}={value}" for key, value in document["stop"].items())
    stopped, steps, hours = document["stopped"], document["steps"], document["accelerator_hours"]
    cost = f"{hours['saved']:.3g} of {hours['total']:.3g} accelerator-hours"
    count = f"{len(stopped)} of {document['trials']} trials"
    lines = [
        f"{style.paint(document['sweep'], 'bold')}  {rule}",
        f"It would have stopped {count}, and saved {steps['share']:.0%} of the steps: {cost}.",
        *_winner_lines(document),
    ]
    if stopped:
        rows = [(str(each["number"]), str(each["step"]), each["why"]) for each in stopped[:_MOST_ROWS]]
        lines += ["", *table(["TRIAL", "STEP", "WHY"], rows, style, right=frozenset({"TRIAL", "STEP"}))]
    if len(stopped) > _MOST_ROWS:
        lines.append(f"... and {len(stopped) - _MOST_ROWS} more; -o json has all.")
    return lines


def _winner_lines(document: Document) -> list[str]:
    winner, kept = document["winner"], document["best_kept"]
    if winner is None:
        return ["Nothing was ranked, so there is no winner that it could lose."]
    numbers = ", ".join(map(str, winner["trials"]))
    if not winner["lost"]:
        return [f"It would have kept the winner, trial {numbers}."]
    line = f"It would have LOST the winner, trial {numbers}"
    if kept is None:
        return [f"{line}, and every other that was ranked."]
    instead = ", ".join(map(str, kept["trials"]))
    return [f"{line}; the best of those kept is trial {instead} with {number_text(kept['value'])}."]
