"""The description of a sweep's parent run in MLflow: who won, and what others came to. Pure, to Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from airflows.report.facts import Facts, values_of
from airflows.report.figures.drawing import number_words, shown
from airflows.report.headline import headline

MOST_BYTES = 4900
"""Older MLflow servers take 5,000 bytes."""
_ROWS = 10
_COLUMNS = 6
_OVERRIDES_BYTES = 2000
_CAUSES = 5
_CELL_CHARS = 40
_LONG_CHARS = 160
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&-])")


def description(facts: Facts, *, has_report: bool) -> str:
    """Return the description.

    Args:
        facts: what is told.
        has_report: `report.html` is among the artifacts.
    """
    ways = _ways(facts, has_report=has_report)
    # The winner and the ways to more are always told; what does not fit is in the report.
    made = f"{_opening(facts)}\n\n"
    tables = [_ranked(facts, most) for most in (_ROWS, _ROWS // 2, 1)]
    for forms in ([_trust(facts)], tables, [_failures(facts)]):
        part = next((form for form in forms if _size(made, form, ways) + 2 <= MOST_BYTES), "")
        made += f"{part}\n\n" if part else ""
    return made + ways


def _size(*texts: str) -> int:
    return sum(len(text.encode(errors="replace")) for text in texts)


def _opening(facts: Facts) -> str:
    message = f" {_text(facts.message, _LONG_CHARS)}" if facts.message else ""
    lines = [f"**{_text(headline(facts), _LONG_CHARS * 2)}**{message}"]
    best = facts.best
    if best is not None:
        told = _cut([f"{_text(key)} = {_text(value)}" for key, value in best.overrides.items()])
        lines.append(f"Winner's overrides: {told}" if len(facts.goals) == 1 else f"Its overrides: {told}")
    return "\n\n".join(lines)


def _cut(texts: Sequence[str]) -> str:
    kept = list(texts)
    while _size(*kept) > _OVERRIDES_BYTES:
        kept.pop()
    more = len(texts) - len(kept)
    return ", ".join(kept) + (f" and {more:,} more" if more else "")


def _trust(facts: Facts) -> str:
    # A command among the sentences is indented by two.
    sentences = [f"- {_text(one, 400)}" for one in facts.words if not one.startswith("  ")]
    return "\n".join(sentences)


def _ranked(facts: Facts, most: int) -> str:
    if not facts.groups:
        return ""
    parameters = facts.leading_parameters(_COLUMNS) or list(facts.parameters[:_COLUMNS])
    head = ["rank", *(goal.metric for goal in facts.goals), *(each.name for each in parameters), "trials"]
    lines = [_row(head), _row(["---"] * len(head), is_markup=True)]
    for group in facts.groups[:most]:
        own = [each.value(group.overrides) for each in parameters]
        words = ["" if value is None else value for value in own]
        lines.append(
            _row([group.rank, *map(number_words, values_of(group)), *words, " ".join(map(str, group.trials))])
        )
    more = len(facts.groups) - most
    return "\n".join(lines) + (f"\n\nand {more:,} more points" if more > 0 else "")


def _failures(facts: Facts) -> str:
    lines = [
        f"- {len(cause.numbers):,} x {_text(cause.reason.replace('_', ' '))}"
        f"{' at ' + _text(cause.condition) if cause.condition else ''}:"
        f" {_text(cause.said or cause.signature, _LONG_CHARS)}"
        for cause in facts.causes[:_CAUSES]
    ]
    return "\n".join(["Failed attempts, by trials:", "", *lines]) if lines else ""


def _ways(facts: Facts, *, has_report: bool) -> str:
    report = "The artifact `report.html` has every point and all plots. " if has_report else ""
    return (
        f"{report}The artifact `results.csv` has every trial, `winner.yaml` a train.yaml for the winner."
        f" To compare trials, search the runs for `tags.\"airflows.sweep\" = '{facts.sweep}'`."
        f" In a terminal: `airflows results {facts.sweep}`."
    )


def _row(cells: Sequence[Any], *, is_markup: bool = False) -> str:
    texts: Iterable[str] = cells if is_markup else (_text(cell) for cell in cells)
    return f"| {' | '.join(texts)} |"


def _text(value: Any, most: int = _CELL_CHARS) -> str:
    """Return any value so that Markdown shows it as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(shown(value, most).split()))
