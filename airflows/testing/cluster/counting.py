"""What the pods of a Job mean for it: values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.podstatus import exit_codes, has, is_going, is_over


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule of `podFailurePolicy` says of a failed pod.

    Attributes:
        action: Count, FailJob, FailIndex or Ignore.
        message: which rule of which pod, for FailJob.
    """

    action: str = "Count"
    message: str = ""


@dataclass(slots=True)
class Tally:
    """The pods of a Job, sorted."""

    active: list[Json] = field(default_factory=list)
    terminating: list[Json] = field(default_factory=list)
    succeeded: list[Json] = field(default_factory=list)
    failed: list[Json] = field(default_factory=list)

    @property
    def ready(self) -> int:
        """How many active ones are ready."""
        return sum(has(pod, "Ready") for pod in self.active)


def tally(pods: Iterable[Json], *, counts_stopping: bool) -> Tally:
    """Sort pods; with `counts_stopping` one that is told to end has failed already."""
    sorted_pods = Tally()
    for pod in pods:
        if is_over(pod):
            ended = sorted_pods.succeeded if pod["status"]["phase"] == "Succeeded" else sorted_pods.failed
            ended.append(pod)
        elif is_going(pod):
            sorted_pods.active.append(pod)
        else:
            sorted_pods.terminating.append(pod)
            if counts_stopping:
                sorted_pods.failed.append(pod)
    return sorted_pods


def verdict(policy: Mapping[str, Any] | None, pod: Json) -> Verdict:
    """Return what is to be done about a failed pod."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        words = _matches(rule, pod)
        if words:
            return Verdict(rule["action"], f"{words} matching {rule['action']} rule at index {number}")
    return Verdict()


def _matches(rule: Mapping[str, Any], pod: Json) -> str:
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for pattern in rule.get("onPodConditions") or ():
        for known in pod["status"].get("conditions") or ():
            if known["type"] == pattern["type"] and known["status"] == pattern.get("status", "True"):
                return f"Pod {name} has condition {pattern['type']}"
    wanted = rule.get("onExitCodes")
    if not wanted:
        return ""
    for container, code in exit_codes(pod):
        if code == 0 or wanted.get("containerName") not in (None, container):
            continue
        if (code in wanted["values"]) is (wanted["operator"] == "In"):
            return f"Container {container} for pod {name} failed with exit code {code}"
    return ""


def written_indexes(indexes: Iterable[int]) -> str:
    """Return indexes as a Job's status has them, such as `0,2-4`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(_written_run(run) for run in runs)


def read_indexes(text: str) -> set[int]:
    """Return the indexes of a status."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def met_rule(policy: Mapping[str, Any] | None, succeeded: set[int]) -> int | None:
    """Return the first rule of `successPolicy` that is met."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        among = succeeded
        if "succeededIndexes" in rule:
            wanted = read_indexes(rule["succeededIndexes"])
            among = succeeded & wanted
            if "succeededCount" not in rule and among == wanted:
                return number
        if "succeededCount" in rule and len(among) >= rule["succeededCount"]:
            return number
    return None


def restarts(pods: Sequence[Json]) -> int:
    """Return how often containers were started again in place."""
    return sum(
        container.get("restartCount", 0)
        for pod in pods
        for container in pod["status"].get("containerStatuses") or ()
    )


def _written_run(run: list[int]) -> str:
    if len(run) <= 2:  # noqa: PLR2004 - two are written one by one
        return ",".join(map(str, run))
    return f"{run[0]}-{run[-1]}"
