"""Whether the keys of `stop` go together. Pure."""

from __future__ import annotations

from airflows.place import Place
from airflows.spec import ADAPTIVE, SweepSpec
from airflows.stopping.setting import KEYS

_COMMON = frozenset({"method", "metric", "goal", "nan"})


def check_stop(spec: SweepSpec, place: Place) -> None:
    """Check `stop` as a whole.

    Raises:
        SpecError: a key is missing or does not go with the method, or nothing can be looked at.
    """
    stop, here = spec.stop, place.at("stop")
    given = stop.model_dump(exclude_none=True).keys() - _COMMON
    method = stop.method or "nan"
    allowed, needed = KEYS[method]
    if extra := sorted(given - allowed):
        known = ", ".join(sorted(allowed)) or "none but metric and nan"
        what = f"stop.method {method}" if stop.method else "stop without a method"
        here.at(extra[0]).fail(f"{what} has no {extra[0]}.", f"Its own keys: {known}.")
    if missing := sorted(needed - given):
        here.fail(f"stop.method {method} needs {missing[0]}.")
    if stop.min_steps and stop.max_steps and stop.min_steps >= stop.max_steps:
        here.at("max_steps").fail("max_steps must be larger than min_steps.")
    if stop.resume and spec.method in ADAPTIVE:
        here.at("resume").fail(
            f"search.method {spec.method} learns from trials that end, and with resume most of them wait.",
            "Use asha without resume.",
        )
    if stop.method in {None, "nan"}:
        return
    if (spec.tracking.uri or "").lower() == "none":
        here.fail("Early stopping reads metrics from MLflow, and tracking.uri is none.")
    goals = {objective.metric: objective.goal for objective in spec.all_objectives}
    if stop.metric is None and not goals:
        here.fail("Early stopping needs a metric.", "Give an objective, or metric and goal here.")
    if stop.metric is not None and stop.goal is None and stop.metric not in goals:
        here.at("metric").fail(
            f"No objective says which value of {stop.metric} is better.", "Write goal: minimize or maximize."
        )
