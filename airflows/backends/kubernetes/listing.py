"""What a namespace has of ours, as `airflows list --remote` and `airflows get` show it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from airflows import ids
from airflows.backends.base import Observation, Phase, RemoteRun
from airflows.backends.kubernetes import states
from airflows.backends.kubernetes.manifest import ATTEMPT, MAIN, QUEUE, SPEC, TRIAL
from airflows.backends.kubernetes.pods import Pod, newest_of_each, seconds
from airflows.backends.kubernetes.states import Known
from airflows.trial import Handle

_WORDS = {Phase.QUEUED: "PENDING", Phase.RUNNING: "RUNNING", Phase.UNKNOWN: "DELETING"}
_OURS = re.compile(r"[a-z][a-z0-9-]*-[0-9a-f]{6}-\d{4,}-a\d+")
"""The form of an attempt's token, which is its Job's name."""


def remote_run(job: Mapping[str, Any], pods: Iterable[Pod]) -> RemoteRun | None:
    """Return a Job that waits or runs; None for one that has ended, or is not ours."""
    metadata = job.get("metadata") or {}
    name = str(metadata.get("name"))
    if SPEC not in (metadata.get("labels") or {}) or not _OURS.fullmatch(name) or states.is_over(job):
        return None
    seen = states.observe(Known(job, list(pods)))
    return RemoteRun(
        handle=Handle(name),
        name=name,
        token=_token(name),
        phase=seen.phase,
        word=_word(job, seen),
        detail=seen.detail,
        host=seen.host,
        submitted_at=seconds(metadata.get("creationTimestamp")),
        started_at=seen.started_at,
    )


def story(job: Mapping[str, Any], pods: Iterable[Pod]) -> dict[str, Any]:
    """Return what a Job says of itself, for people and as JSON.

    Args:
        job: as the API has it.
        pods: of it.
    """
    metadata, newest = job.get("metadata") or {}, newest_of_each(pods)
    seen = states.observe(Known(job, list(newest.values())))
    labels, conditions = metadata.get("labels") or {}, states.conditions_of(job)
    ended = next((word.upper() for word in ("Complete", "Failed") if word in conditions), "")
    return {
        "job": metadata.get("name"),
        "namespace": metadata.get("namespace"),
        "sweep": (metadata.get("annotations") or {}).get("airflows/sweep-id"),
        "trial": labels.get(TRIAL),
        "attempt": labels.get(ATTEMPT),
        "status": ended or _word(job, seen),
        "reason": seen.word or None,
        "message": seen.detail or None,
        "exit_code": seen.exit_code,
        "submitted_at": metadata.get("creationTimestamp"),
        "started_at": _text(seen.started_at),
        "ended_at": _text(seen.ended_at),
        "nodes": (job.get("spec") or {}).get("completions"),
        "queue": labels.get(QUEUE),
        "image": _image(job),
        "pods": [_pod_words(pod) for pod in newest.values()],
    }


def _image(job: Mapping[str, Any]) -> str | None:
    template = (job.get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return next((each.get("image") for each in containers if each.get("name") == MAIN), None)


def _pod_words(pod: Pod) -> str:
    state = f"exit {pod.exit_code}" if pod.has_ended else pod.why_not or pod.phase.lower()
    return f"{pod.index}: {pod.name} on {pod.host or 'no machine yet'}, {state}"


def _text(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


def _word(job: Mapping[str, Any], seen: Observation) -> str:
    if states.is_going(job):
        return "DELETING"
    return "SUSPENDED" if states.is_suspended(job) else _WORDS.get(seen.phase, "UNKNOWN")


def _token(name: str) -> str:
    try:
        ids.parse_token(name)
    except ValueError:
        return ""
    return name
