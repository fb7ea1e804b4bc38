"""An MLflow store behind a server or another database, through MLflow's client.

Imports MLflow: loaded late.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cache
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Param, RunTag
from mlflow.exceptions import MlflowException

from airflows.scores import MetricPoint
from airflows.tracking.runs import FoundRun, NewRun, RunEnd
from airflows.tracking.trouble import TrackingRefusedError, asking, is_gone, is_refusal
from airflows.tracking.uris import shown_uri

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

_PAGE = 200
_IDS_IN_FILTER = 100
_PARAMS_IN_BATCH = 100
# Requests wait for the server most of their time, so a few at once; MLflow's session is safe for that.
_AT_ONCE = 8


def _remember_credentials(client: Any) -> None:
    """Let a client look for its credentials once.

    MLflow looks for them before each request to Databricks, and the SDK asks the workspace where its login
    page is each time. What is found names the workspace; tokens that run out are renewed by the SDK.
    """
    tracking = client._tracking_client  # noqa: SLF001 - there is no other way
    # MLflow keeps one store for an address and hands it to everybody: this client gets one of its own.
    store = copy(tracking.store)
    store.get_host_creds = cache(store.get_host_creds)
    tracking.__class__ = type("TrackingClient", (type(tracking),), {"store": store})


class ClientRuns:
    """The runs of any store that MLflow's client can reach. A call is a request or a few."""

    def __init__(self, uri: str, user: str) -> None:
        self._uri = uri
        self._user = user
        _, is_profile, profile = uri.partition("databricks://")
        if is_profile:
            # Parts of MLflow that store artifacts look for credentials without the profile of the address.
            os.environ.setdefault("DATABRICKS_CONFIG_PROFILE", profile)
        with asking(uri):
            self._client: Any = MlflowClient(tracking_uri=uri)
            if uri.startswith("databricks"):
                _remember_credentials(self._client)

    def ping(self) -> None:
        """Return when the store answers."""
        with asking(self._uri):
            self._client.search_experiments(max_results=1)

    def experiment(self, name: str) -> str:
        """Return the id of the experiment of this name, made when there is none."""
        with asking(self._uri):
            found = self._client.get_experiment_by_name(name)
            if found is None:
                return self._new_experiment(name)
        if found.lifecycle_stage != "active":
            message = f"the MLflow experiment {name!r} in {shown_uri(self._uri)} was deleted."
            raise TrackingRefusedError(message, hint="Restore it, or name another as tracking.experiment.")
        return str(found.experiment_id)

    def known_experiment(self, name: str) -> str:
        """Return the id of the experiment of this name, empty for none; nothing is made."""
        with asking(self._uri):
            found = self._client.get_experiment_by_name(name)
        return "" if found is None or found.lifecycle_stage != "active" else str(found.experiment_id)

    def create(self, experiment_id: str, runs: Sequence[NewRun]) -> list[str]:
        """Make runs, status RUNNING; return their ids in order."""
        return list(self._each(lambda run: self._create(experiment_id, run), runs))

    def adopt(self, run_id: str, run: NewRun) -> None:
        """Set tags and params of a run that somebody else made, in one request where that is possible."""
        tags = [RunTag(key, value) for key, value in run.tags.items()]
        most = _PARAMS_IN_BATCH - len(tags)
        first = [Param(key, value) for key, value in list(run.params.items())[:most]]
        with asking(self._uri):
            try:
                self._client.log_batch(run_id, params=first, tags=tags)
            except MlflowException as exc:
                if is_gone(exc):
                    return
                # The program may have logged a param of that name with another value.
                if not is_refusal(exc):
                    raise
                self._client.log_batch(run_id, tags=tags)
            else:
                self._log_params(run_id, dict(list(run.params.items())[most:]))

    def complete(self, run_id: str, run: NewRun) -> None:
        """Log what a run may lack whose making was cut short."""
        with asking(self._uri):
            self._log_params(run_id, run.params)

    def end(self, ends: Sequence[RunEnd]) -> None:
        """Set the runs' tags and end them."""
        for _ in self._each(lambda end: self._unless_gone(self._end, end), ends):
            pass

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set the runs' status to RUNNING."""
        for run_id in run_ids:
            self._unless_gone(self._client.update_run, run_id, "RUNNING")

    def latest(self, experiment_id: str, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the latest value of each metric, for each of these runs that is active."""
        found: dict[str, Mapping[str, MetricPoint]] = {}
        for start in range(0, len(run_ids), _IDS_IN_FILTER):
            listed = ", ".join(f"'{run_id}'" for run_id in run_ids[start : start + _IDS_IN_FILTER])
            for run in self._search(experiment_id, f"attributes.run_id IN ({listed})"):
                # The entity's own mapping has values only; steps and times are in the list behind it.
                points = run.data._metric_objs  # noqa: SLF001
                found[run.info.run_id] = {m.key: MetricPoint(m.step, m.value, m.timestamp) for m in points}
        return found

    def histories(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Yield all values of a metric for each of these runs."""
        # A few runs at a time, since a history may be long.
        for start in range(0, len(run_ids), _AT_ONCE):
            page = run_ids[start : start + _AT_ONCE]
            yield from zip(page, self._each(lambda run_id: self._history(run_id, metric), page), strict=True)

    def find(self, experiment_id: str, tags: Mapping[str, str]) -> Iterator[FoundRun]:
        """Yield the active runs that have all these tags, in pages."""
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        for run in self._search(experiment_id, wanted):
            yield FoundRun(run.info.run_id, run.data.tags, run.info.status, run.info.start_time or 0)

    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete runs, as MLflow does it."""
        for _ in self._each(lambda run_id: self._unless_gone(self._client.delete_run, run_id), run_ids):
            pass

    def log_file(self, run_id: str, path: str, folder: str) -> None:
        """Store a local file as an artifact."""
        self._unless_gone(self._client.log_artifact, run_id, path, folder or None)

    def _new_experiment(self, name: str) -> str:
        try:
            return str(self._client.create_experiment(name))
        except MlflowException as exc:
            # Another driver may have made it in the meantime.
            if exc.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return str(self._client.get_experiment_by_name(name).experiment_id)

    def _create(self, experiment_id: str, run: NewRun) -> str:
        tags = {**run.tags, "mlflow.user": self._user}
        with asking(self._uri):
            made = self._client.create_run(experiment_id, run.start_ms, tags, run.name)
            self._log_params(made.info.run_id, run.params)
        return str(made.info.run_id)

    def _log_params(self, run_id: str, params: Mapping[str, str]) -> None:
        entities = [Param(key, value) for key, value in params.items()]
        try:
            for start in range(0, len(entities), _PARAMS_IN_BATCH):
                self._client.log_batch(run_id, params=entities[start : start + _PARAMS_IN_BATCH])
        except MlflowException as exc:
            # Older servers take shorter values; nothing may be lost, and no trial fails for it.
            if not is_refusal(exc):
                raise
            self._client.log_dict(run_id, dict(params), "airflows/params.json")

    def _history(self, run_id: str, metric: str) -> list[MetricPoint]:
        with asking(self._uri):
            values = self._client.get_metric_history(run_id, metric)
        return [MetricPoint(value.step, value.value, value.timestamp) for value in values]

    def _end(self, end: RunEnd) -> None:
        if end.tags:
            self._client.log_batch(end.run_id, tags=[RunTag(key, value) for key, value in end.tags.items()])
        if end.status:
            self._client.set_terminated(end.run_id, end.status, end.end_ms)

    def _search(self, experiment_id: str, wanted: str) -> Iterator[Any]:
        token: str | None = None
        while True:
            with asking(self._uri):
                # Never with order_by: it joins and sorts, and takes a hundred times as long.
                page = self._client.search_runs([experiment_id], wanted, max_results=_PAGE, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def _unless_gone(self, call: Any, *arguments: Any) -> None:
        with asking(self._uri):
            try:
                call(*arguments)
            except MlflowException as exc:
                if not is_gone(exc):
                    raise

    def _each(self, call: Callable[[_Item], _Answer], items: Sequence[_Item]) -> Iterator[_Answer]:
        if len(items) < 2:  # noqa: PLR2004 - nothing to do at once
            yield from map(call, items)
            return
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="mlflow") as pool:
            yield from pool.map(call, items)
