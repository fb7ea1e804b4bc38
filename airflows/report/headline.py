"""The first lines of a report: who won, by how much, at what cost, and what to type next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from airflows.ranking import Figures, Group
from airflows.report.facts import Facts
from airflows.report.figures.drawing import number_words
from airflows.report.figures.effort import hours_by_use
from airflows.times import human_duration

Tile = tuple[str, str, str]


def headline(facts: Facts) -> str:
    """Return the winner in a sentence, or why there is none."""
    best, so_far = facts.best, "" if facts.is_complete else " so far"
    if not facts.goals:
        return "The sweep file has no objective, so nothing is ranked."
    if best is None:
        if not facts.groups:
            return f"There is no winner{so_far}: no trial can be ranked."
        return f"There is no winner{so_far}: no point keeps all constraints."
    if len(facts.goals) > 1:
        values = ", ".join(f"{one.metric} {_value(one)}" for one in best.objectives)
        return (
            f"Trial {facts.best_trial} is the best compromise{so_far}: {values}."
            f" Several objectives have no single winner; the Pareto front has {_points(facts)}."
        )
    goal = facts.goals[0]
    word = "lowest" if goal.sign > 0 else "highest"
    who = f"Trial {facts.best_trial}" if best.n == 1 else f"The point of trials {_numbers(best)}"
    return f"{who} has the {word} {goal.metric}{so_far}{_rule(goal.rule)}: {_value(best)}."


def _numbers(group: Group) -> str:
    words = [str(number) for number in group.trials]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _rule(rule: str) -> str:
    kind, _, count = rule.partition(" ")
    words = {
        "best": ", each by its best value",
        "mean_of_last": f", by the mean of the last {count} values",
        "at_step": f" at step {count}",
    }
    return words.get(kind, "")


def _points(facts: Facts) -> str:
    count = 0 if facts.ranking is None else len(facts.ranking.front)
    return f"{count} point{'s' * (count != 1)}"


def _value(of: Group | Figures) -> str:
    if of.sd is None:
        return number_words(of.value)
    interval = "" if of.ci95 is None else f", 95 % interval {_interval(of.ci95)}"
    mean = "" if of.value == of.mean else f"mean {number_words(of.mean)}, "
    return f"{number_words(of.value)} ({mean}{of.n} replicates, sd {of.sd:.2g}{interval})"


def _interval(ci95: tuple[float, float]) -> str:
    return f"{number_words(ci95[0])} to {number_words(ci95[1])}"


def key_figures(facts: Facts) -> list[Tile]:
    """Return what is told at the top: a name, a figure, and a few words more."""
    hours = hours_by_use(facts)
    lost = sum(hours.values()) - hours["useful"]
    until = facts.ended_at or facts.made_at
    return [
        *_best_tiles(facts),
        ("trials", f"{len(facts.trials):,}", _states(facts)),
        ("accelerator-hours", f"{hours['useful']:.3g}", f"{lost:.3g} lost" if lost else "none lost"),
        ("took", human_duration(max(0.0, until - facts.began_at)), "" if facts.ended_at else "so far"),
    ]


def _best_tiles(facts: Facts) -> list[Tile]:
    best = facts.best
    if best is None:
        return [("winner", "none", "")]
    shown: Sequence[Group | Figures] = best.objectives or (best,)
    tiles = []
    for goal, figures in zip(facts.goals, shown, strict=True):
        more = "" if figures.ci95 is None else _interval(figures.ci95)
        tiles.append((goal.metric, number_words(figures.value), more))
    return [*tiles[:3], ("knee" if best.objectives else "winner", f"trial {facts.best_trial}", "")]


def _states(facts: Facts) -> str:
    counts = Counter(trial.state.value for trial, _ in facts.trials)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


def commands(facts: Facts) -> list[tuple[str, str]]:
    """Return (what it does, the command) of what people do next."""
    made = [("the table in a terminal", f"airflows results {facts.sweep}")]
    if facts.best is not None:
        if facts.is_own:
            made.append(("a train.yaml that runs the winner again", f"airflows best {facts.sweep} --as yaml"))
        made.append(
            (
                f"how trial {facts.best_trial} came about",
                f"airflows get {facts.sweep}/{facts.best_trial}",
            )
        )
    return made
