"""What a namespace has of ours, as `airflows list --remote` and `airflows get` show it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from airflows import ids
from airflows.backends.base import Observation, Phase, RemoteRun
from airflows.backends.kubernetes import states
from airflows.backends.kubernetes.manifest import SPEC
from airflows.backends.kubernetes.pods import Pod, seconds
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
