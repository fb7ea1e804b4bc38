"""Ranked table, winner, and how far it can be trusted, as text for people. Pure: a document in, lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflows.cli.causes import causes_lines, code_lines
from airflows.cli.places import places_lines
from airflows.cli.render import objective_text
from airflows.cli.table import (
    NOTHING,
    number_text,
    one_line,
    overrides_text,
    short_keys,
    table,
    value_text,
)
from airflows.cli.terminal import Style
from airflows.ranking import NOISE_P
from airflows.report.packed import gain_text
from airflows.report.places import place_of

Document = Mapping[str, Any]

_MOST_NUMBERS = 8
_NOT_LOGGED = "no metric: "


def results_lines(
    results: Document, style: Style, *, top: int | None = None, causes: bool = True
) -> list[str]:
    """Return the ranked table, who is not ranked and why, the winner, and why trials failed.

    Args:
        results: the document.
        style: how it looks.
        top: most rows of the table.
        causes: whether to tell why trials failed.
    """
    told = causes_lines(results["causes"], style, avoided=results["avoided"]) if causes else []
    objective = results["objective"]
    if objective is None:
        places = places_lines(results.get("places"), style)
        return [f"{results['sweep']} has no objective, so nothing is ranked.", *places, *told]
    aims = ", ".join(map(objective_text, results["objectives"] or [objective]))
    head = f"{style.paint(results['sweep'], 'bold')}  {aims}"
    lines = [head if results["complete"] else f"{head}, not finished yet", ""]
    ranked = results["ranked"] if top is None else results["ranked"][:top]
    if ranked:
        several = bool(results["objectives"])
        where = place_of(results.get("places") or ())
        lines += (
            _front_lines(ranked, style, where) if several else _ranked_lines(ranked, objective, style, where)
        )
        hidden = len(results["ranked"]) - len(ranked)
        lines += [style.paint(f"… and {hidden} more", "dim")] if hidden > 0 else []
    lines += _unranked_lines(results["unranked"], style, grouped=bool(results["causes"]))
    lines += ["", *winner_lines(results, style), *_importance_lines(results["importance"], style)]
    packing = results.get("packing")
    lines += ["", f"packed: {gain_text(packing)}"] if packing else []
    lines += places_lines(results.get("places"), style)
    return [*lines, *code_lines(results["code"], style), *told]


def _ranked_lines(
    ranked: Sequence[Document], objective: Document, style: Style, where: Mapping[int, str]
) -> list[str]:
    metric = objective["metric"]
    keys = short_keys(key for group in ranked for key in group["overrides"])
    replicated = any(group["n"] > 1 for group in ranked)
    notes = any(group["note"] or group["stopped_early"] for group in ranked)
    header = [
        "RANK",
        *keys.values(),
        metric,
        *(("SD", "N", "VS WINNER") if replicated else ()),
        "STEP",
        "TRIALS",
    ]
    header += ["PLACE"] if where else []
    header += ["NOTE"] if notes else []
    rows = []
    for group in ranked:
        overrides = group["overrides"]
        row = [str(group["rank"]), *(value_text(overrides[key]) if key in overrides else "" for key in keys)]
        row.append(number_text(group["value"]))
        if replicated:
            row += [number_text(group["sd"], 2), str(group["n"]), versus_text(group)]
        row += [_steps_text(group["steps"]), _numbers_text(group["trials"])]
        row += [_places_text(group, where)] if where else []
        row += [group["note"] or ("stopped early" if group["stopped_early"] else "")] if notes else []
        rows.append(row)
    return table(header, rows, style, right=frozenset({"RANK", metric, "SD", "N", "STEP"}))


def _front_lines(ranked: Sequence[Document], style: Style, where: Mapping[int, str]) -> list[str]:
    """Return the table of several objectives."""
    keys = short_keys(key for group in ranked for key in group["overrides"])
    metrics = [figures["metric"] for figures in ranked[0]["objectives"]]
    replicated = any(group["n"] > 1 for group in ranked)
    spread = {"SD"} if replicated else set()
    header = ["RANK", "FRONT", *keys.values()]
    header += [name for metric in metrics for name in (metric, *spread)]
    header += ["N"] if replicated else []
    notes = any(group["note"] or group["stopped_early"] for group in ranked)
    rows = []
    for group in ranked:
        overrides = group["overrides"]
        row = [str(group["rank"]), "knee" if group["is_knee"] else "yes" if group["on_front"] else ""]
        row += [value_text(overrides[key]) if key in overrides else "" for key in keys]
        for figures in group["objectives"]:
            row.append(number_text(figures["value"]))
            row += [number_text(figures["sd"], 2)] if replicated else []
        row += [str(group["n"])] if replicated else []
        row.append(_numbers_text(group["trials"]))
        row += [_places_text(group, where)] if where else []
        row += [group["note"] or ("stopped early" if group["stopped_early"] else "")] if notes else []
        rows.append(row)
    header += ["TRIALS", *(["PLACE"] if where else []), *(["NOTE"] if notes else [])]
    return table(header, rows, style, right=frozenset({"RANK", "N", "SD", *metrics}))


def versus_text(group: Document) -> str:
    """Return how a group's mean stands against the winner's."""
    if group["p_adjusted"] is None:
        return ""
    word = "better mean" if _is_ahead(group) else "within noise"
    word = "worse" if group["separable_from_winner"] else word
    return f"{word}, p={group['p_adjusted']:.2g}"


def _steps_text(steps: Sequence[int | None]) -> str:
    known = list(dict.fromkeys(step for step in steps if step is not None))
    return _numbers_text(known) if known else NOTHING


def _places_text(group: Document, where: Mapping[int, str]) -> str:
    return " ".join(dict.fromkeys(where.get(number, NOTHING) for number in group["trials"]))


def _numbers_text(numbers: Sequence[int]) -> str:
    shown = " ".join(str(number) for number in numbers[:_MOST_NUMBERS])
    hidden = len(numbers) - _MOST_NUMBERS
    return f"{shown} +{hidden}" if hidden > 0 else shown


def _unranked_lines(unranked: Sequence[Document], style: Style, *, grouped: bool) -> list[str]:
    by_reason: dict[str, list[int]] = {}
    for trial in unranked:
        # Where the causes are told by themselves, not every error is told here again.
        is_failure = grouped and trial["reason"].startswith("failed: ")
        by_reason.setdefault("failed" if is_failure else trial["reason"], []).append(trial["number"])
    if not by_reason:
        return []
    lines = ["", style.paint("not ranked", "bold")]
    return lines + [
        f"{len(numbers):>5} x {one_line(reason)} (trials {_numbers_text(numbers)})"
        for reason, numbers in by_reason.items()
    ]


def winner_lines(results: Document, style: Style) -> list[str]:
    """Return the winner, or of several objectives the front's knee, and how far it can be trusted."""
    if results["pareto"]:
        return _knee_lines(results["pareto"], style)
    winner = results["winner"]
    if winner is None:
        lines = [style.paint("There is no winner.", "yellow")]
        if results["unranked"] and all(one["reason"].startswith(_NOT_LOGGED) for one in results["unranked"]):
            way = f"airflows results {results['sweep']} --metric METRIC --goal {results['objective']['goal']}"
            lines.append(f"To rank what ran by another metric: {way}")
        return lines
    metric = results["objective"]["metric"]
    lines = [
        f"{style.paint('winner', 'green', 'bold')}  {winner['trial']}  {overrides_text(winner['overrides'])}",
        f"        {metric} {number_text(winner['value'])}{_spread_text(winner)}",
    ]
    second = next((group for group in results["ranked"] if group["rank"] == winner["rank"] + 1), None)
    if second is not None and second["p"] is not None:
        lines.append(f"        the runner-up ({number_text(second['value'])}) {_beyond_text(second)}")
    found = results["verdict"]
    return lines + [f"        {line}" for line in (found["words"] if found else ())]


def _spread_text(group: Document) -> str:
    if group["sd"] is None:
        return ""
    sd, interval = number_text(group["sd"], 2), _interval_text(group)
    return f" (mean {number_text(group['mean'])} of {group['n']}, sd {sd}, 95 % interval {interval})"


def _interval_text(group: Document) -> str:
    if group["ci95"] is None:
        return ""
    low, high = (number_text(bound) for bound in group["ci95"])
    return f"{low} to {high}"


def _beyond_text(second: Document) -> str:
    adjusted = "" if second["p_adjusted"] == second["p"] else f", {second['p_adjusted']:.2g} adjusted"
    beyond = "has a better mean, beyond noise" if _is_ahead(second) else "is within noise"
    beyond = "is worse beyond noise" if second["separable_from_winner"] else beyond
    return f"{beyond}: p = {second['p']:.2g}{adjusted}"


def _is_ahead(group: Document) -> bool:
    """Whether its mean is better than the winner's beyond noise, where another figure ranks the groups."""
    return group["separable_from_winner"] is False and group["p_adjusted"] < NOISE_P


def _knee_lines(front: Sequence[Document], style: Style) -> list[str]:
    knee = front[0]
    values = ", ".join(f"{one['metric']} {number_text(one['value'])}" for one in knee["objectives"])
    points = f"{len(front)} points" if len(front) > 1 else "1 point"
    chance = ["        Each ran once, so chance has a part in who is on it."] if knee["n"] == 1 else []
    title, trial = style.paint("knee", "green", "bold"), min(knee["trials"])
    return [
        f"{title}    trial {trial}  {overrides_text(knee['overrides'])}",
        f"        {values}",
        f"        of a Pareto front of {points}: no other point is as good in all and better in one",
        *chance,
    ]


def _importance_lines(importance: Document | None, style: Style) -> list[str]:
    if importance is None:
        return []
    lines = ["", style.paint("parameter importance", "bold")]
    if importance["why_not"]:
        return [*lines, f"  {importance['why_not']}"]
    width = max(len(one["key"]) for one in importance["parameters"])
    for one in importance["parameters"]:
        only = (
            f"  (active in {one['points']} of {importance['points']})"
            if one["points"] < importance["points"]
            else ""
        )
        lines.append(f"  {one['key'].ljust(width)}  {one['share']:>6.1%}{only}")
    what = f"of {importance['points']} points: what tells the best from the others (Optuna, PED-ANOVA)"
    return [*lines, f"  {what}"]


def best_lines(winner: Document, metric: str, style: Style, verdict: Document | None = None) -> list[str]:
    """Return `best`: the winner, or the knee of several objectives, and how far it can be trusted."""
    fields = [
        ("trial", style.paint(winner["trial"], "bold")),
        (metric, number_text(winner["value"])),
        ("sd", "" if winner["sd"] is None else f"{number_text(winner['sd'], 2)} (n = {winner['n']})"),
        ("interval", _interval_text(winner)),
        *((one["metric"], number_text(one["value"])) for one in winner.get("objectives", ())[1:]),
        ("MLflow run", winner["mlflow_run_id"] or ""),
        *((key, value_text(value)) for key, value in winner["overrides"].items()),
        ("note", winner["note"]),
        ("front", "the knee of the Pareto front" if winner.get("is_knee") else ""),
    ]
    width = max(len(name) for name, _ in fields)
    lines = [f"{style.paint(name.ljust(width), 'dim')}  {value}" for name, value in fields if value]
    return lines + list(verdict["words"] if verdict else ())
