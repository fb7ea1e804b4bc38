"""One event in Prefect for each transition of a trial, for automations."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Sequence
from typing import Any

from prefect.client.schemas.objects import FlowRun
from prefect.events import emit_event

from airflows.documents import without_passwords
from airflows.engine.observers import Snapshot
from airflows.ledger import Change
from airflows.trial import EventKind, State

_MOST_LOGGED = 20
_SHOWN = frozenset(
    {State.QUEUED, State.RUNNING, State.SUCCEEDED, State.FAILED, State.STOPPED, State.CANCELLED}
)


def event_name(change: Change) -> str:
    """Return the event's name for a transition, empty for one that is nobody's business. Pure."""
    if change.event.kind is EventKind.RETRIED:
        return "airflows.trial.retried"
    state = change.after.state
    is_news = state in _SHOWN and state is not change.before.state
    return f"airflows.trial.{state.value}" if is_news else ""


def resource_of(change: Change) -> dict[str, str]:
    """Return what the event is about: the trial. Pure."""
    trial = change.after
    return {
        "prefect.resource.id": f"airflows.trial.{trial.id}",
        "prefect.resource.name": trial.id,
        "airflows.sweep": trial.sweep,
    }


def payload_of(change: Change) -> dict[str, Any]:
    """Return what the event says. Pure."""
    trial = change.after
    return {
        "trial": trial.id,
        "sweep": trial.sweep,
        "number": trial.number,
        "from": change.before.state.value,
        "to": trial.state.value,
        "reason": (change.event.reason or trial.reason).value,
        "message": without_passwords(change.event.detail or trial.message),
        "attempt": change.before.attempt,
        "backend": trial.backend,
        "handle": trial.handle,
        "mlflow_run_id": trial.run_id,
    }


class EventObserver:
    """An observer that tells Prefect, and logs what went wrong.

    Args:
        run: the flow run that automations find in the events, and may cancel; None for none.
        logger: of the flow run.
    """

    def __init__(self, run: FlowRun | None, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        kinds = {} if run is None else {"flow-run": run.id, "deployment": run.deployment_id}
        self._related = [
            {"prefect.resource.id": f"prefect.{kind}.{id_}", "prefect.resource.role": kind}
            for kind, id_ in kinds.items()
            if id_ is not None
        ]
        self._logger = logger
        self._failures = 0

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Emit an event for each transition."""
        for change in changes:
            name = event_name(change)
            if change.event.kind in {EventKind.FAILED, EventKind.RETRIED}:
                self._log(change)
            if name:
                self._emit(name, change)

    def on_tick(self, snapshot: Snapshot) -> None:
        """Do nothing: artifacts show how the sweep stands."""

    def _log(self, change: Change) -> None:
        self._failures += 1
        if self._failures > _MOST_LOGGED:
            return
        trial = change.before
        what = "failed" if change.after.state is State.FAILED else "failed, to be tried again"
        why = without_passwords(change.event.detail).strip().partition("\n")[0]
        self._logger.warning("%s.%d %s: %s", trial.id, trial.attempt, what, why)
        if self._failures == _MOST_LOGGED:
            self._logger.warning("Further failures are not logged here; the events and the ledger have all.")

    def _emit(self, name: str, change: Change) -> None:
        try:
            # Outside of the flow run's context, from which Prefect would add five more rows to every event.
            contextvars.Context().run(
                emit_event, name, resource_of(change), related=self._related, payload=payload_of(change)
            )
        except Exception as exc:  # noqa: BLE001 - an event that is lost must not end a sweep
            self._logger.warning("The event %s of %s was not sent: %s", name, change.after.id, exc)
