"""An MLflow store in an SQLite file, written in batches.

Through MLflow's own calls a trial costs 14 to 20 ms in all (create, params, tags, read, end: a dozen sessions
of its ORM); in batches of ten, through the tables that MLflow declares and in its sessions, 0.6 ms, one by
one 2 ms. The rows are those that the calls would have made, which a contract test holds to. Imports MLflow:
loaded late.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.store.tracking.dbmodels import models
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from airflows.scores import MetricPoint
from airflows.tracking.runs import FoundRun, NewRun, RunEnd
from airflows.tracking.trouble import TrackingRefusedError, asking
from airflows.tracking.uris import shown_uri

# SQLite allows 32,766 bound values in a statement, 999 before version 3.32.
_PAGE = 500
_HISTORIES = 8

_runs: sa.Table = models.SqlRun.__table__
_tags: sa.Table = models.SqlTag.__table__
_params: sa.Table = models.SqlParam.__table__
_latest: sa.Table = models.SqlLatestMetric.__table__
_metrics: sa.Table = models.SqlMetric.__table__


class SqlRuns:
    """The runs of an SQLite file that exists and has the schema of this MLflow."""

    def __init__(self, uri: str, artifacts: Path, user: str) -> None:
        self._uri = uri
        self._user = user
        with asking(uri):
            self._store: Any = SqlAlchemyStore(uri, str(artifacts))  # type: ignore[no-untyped-call]
        sa.event.listen(self._store.engine, "connect", _on_connect)
        # Connections that were made before the listener would keep their fsync at each commit.
        self._store.engine.dispose()
        self._location = cache(self._artifact_location)

    def ping(self) -> None:
        """Return when the file can be read."""
        with asking(self._uri):
            self._store.get_experiment("0")

    def experiment(self, name: str) -> str:
        """Return the id of the experiment of this name, made when there is none."""
        with asking(self._uri):
            found = self._store.get_experiment_by_name(name) or self._new_experiment(name)
        if found.lifecycle_stage != "active":
            message = f"the MLflow experiment {name!r} in {shown_uri(self._uri)} was deleted."
            raise TrackingRefusedError(message, hint="Restore it, or name another as tracking.experiment.")
        return str(found.experiment_id)

    def create(self, experiment_id: str, runs: Sequence[NewRun]) -> list[str]:
        """Make runs in one transaction, status RUNNING; return their ids in order."""
        if not runs:
            return []
        with asking(self._uri):
            location = self._location(experiment_id)
            ids = [uuid.uuid4().hex for _ in runs]
            rows = [
                self._row(run_id, run, int(experiment_id), location)
                for run_id, run in zip(ids, runs, strict=True)
            ]
            tags = [
                {"run_uuid": run_id, "key": key, "value": value}
                for run_id, run in zip(ids, runs, strict=True)
                for key, value in {**run.tags, "mlflow.runName": run.name}.items()
            ]
            params = [
                {"run_uuid": run_id, "key": key, "value": value}
                for run_id, run in zip(ids, runs, strict=True)
                for key, value in run.params.items()
            ]
            with self._store.ManagedSessionMaker(read_only=False) as session:
                session.execute(sa.insert(_runs), rows)
                session.execute(sa.insert(_tags), tags)
                if params:
                    session.execute(sa.insert(_params), params)
        return ids

    def complete(self, run_id: str, run: NewRun) -> None:
        """Do nothing: a run is made in one transaction."""

    def end(self, ends: Sequence[RunEnd]) -> None:
        """End runs and set their tags, in one transaction."""
        with asking(self._uri), self._store.ManagedSessionMaker(read_only=False) as session:
            active = self._active(session, [end.run_id for end in ends])
            ends = [end for end in ends if end.run_id in active]
            if not ends:
                return
            session.execute(
                _END, [{"id": end.run_id, "new_status": end.status, "end_ms": end.end_ms} for end in ends]
            )
            session.execute(
                _SET_TAG,
                [
                    {"run_uuid": end.run_id, "key": key, "value": value}
                    for end in ends
                    for key, value in end.tags.items()
                ],
            )

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set the runs' status to RUNNING."""
        if run_ids:
            with asking(self._uri), self._store.ManagedSessionMaker(read_only=False) as session:
                session.execute(_REOPEN, [{"id": run_id} for run_id in run_ids])

    def latest(
        self,
        experiment_id: str,  # noqa: ARG002 - run ids are unique in the file
        run_ids: Sequence[str],
    ) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the latest value of each metric, for each of these runs that is active."""
        found: dict[str, dict[str, MetricPoint]] = {}
        with asking(self._uri), self._store.ManagedSessionMaker() as session:
            for start in range(0, len(run_ids), _PAGE):
                page = {"ids": list(run_ids[start : start + _PAGE])}
                for run_id, key, step, value, at_ms, is_nan in session.execute(_LATEST, page):
                    metrics = found.setdefault(run_id, {})
                    if key is not None:
                        metrics[key] = _point(step, value, at_ms, is_nan)
        return found

    def histories(self, run_ids: Sequence[str], metric: str) -> Iterator[tuple[str, Sequence[MetricPoint]]]:
        """Yield all values of a metric for each of these runs, a few runs in memory at a time."""
        for start in range(0, len(run_ids), _HISTORIES):
            found: dict[str, list[MetricPoint]] = {
                run_id: [] for run_id in run_ids[start : start + _HISTORIES]
            }
            with asking(self._uri), self._store.ManagedSessionMaker() as session:
                for run_id, *values in session.execute(_HISTORY, {"ids": list(found), "metric": metric}):
                    found[run_id].append(_point(*values))
            yield from found.items()

    def find(self, experiment_id: str, tags: Mapping[str, str]) -> Iterator[FoundRun]:
        """Yield the active runs that have all these tags, in pages ordered by id."""
        after = ""
        while page := self._page(int(experiment_id), tags, after):
            with asking(self._uri), self._store.ManagedSessionMaker() as session:
                rows = session.execute(sa.select(_tags).where(_tags.c.run_uuid.in_(page))).all()
            by_run: dict[str, dict[str, str]] = {run_id: {} for run_id in page}
            for row in rows:
                by_run[row.run_uuid][row.key] = row.value
            yield from (FoundRun(run_id, found) for run_id, found in by_run.items())
            after = page[-1]

    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete runs, as MLflow does it."""
        with asking(self._uri):
            for run_id in run_ids:
                self._store.delete_run(run_id)

    def log_file(self, run_id: str, path: str, folder: str) -> None:
        """Store a local file as an artifact."""
        with asking(self._uri):
            with self._store.ManagedSessionMaker() as session:
                uri = session.execute(
                    sa.select(_runs.c.artifact_uri).where(_runs.c.run_uuid == run_id)
                ).scalar()
            if uri is not None:
                repository: Any = get_artifact_repository(uri)
                repository.log_artifact(path, folder or None)

    def _new_experiment(self, name: str) -> Any:
        try:
            self._store.create_experiment(name)
        except MlflowException as exc:
            # Another driver may have made it in the meantime.
            if exc.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return self._store.get_experiment_by_name(name)

    def _artifact_location(self, experiment_id: str) -> str:
        experiment = self._store.get_experiment(experiment_id)
        if experiment.lifecycle_stage != "active":
            message = f"the MLflow experiment {experiment.name!r} in {shown_uri(self._uri)} was deleted."
            raise TrackingRefusedError(message, hint="Restore it: mlflow experiments restore.")
        return str(experiment.artifact_location).rstrip("/")

    def _row(self, run_id: str, run: NewRun, experiment_id: int, location: str) -> dict[str, Any]:
        return {
            "run_uuid": run_id,
            "name": run.name,
            "experiment_id": experiment_id,
            "artifact_uri": f"{location}/{run_id}/artifacts",
            "user_id": self._user,
            "status": "RUNNING",
            "start_time": run.start_ms,
            "lifecycle_stage": "active",
            "source_type": "UNKNOWN",
            "source_name": "",
            "entry_point_name": "",
            "source_version": "",
        }

    def _active(self, session: Any, run_ids: Sequence[str]) -> set[str]:
        active: set[str] = set()
        for start in range(0, len(run_ids), _PAGE):
            page = {"ids": list(run_ids[start : start + _PAGE])}
            active.update(session.execute(_ACTIVE, page).scalars())
        return active

    def _page(self, experiment_id: int, tags: Mapping[str, str], after: str) -> list[str]:
        query = sa.select(_runs.c.run_uuid).where(
            _runs.c.experiment_id == experiment_id,
            _runs.c.lifecycle_stage == "active",
            _runs.c.run_uuid > after,
        )
        for key, value in tags.items():
            tag = _tags.alias()
            matches = (tag.c.run_uuid == _runs.c.run_uuid) & (tag.c.key == key) & (tag.c.value == value)
            query = query.join(tag, matches)
        with asking(self._uri), self._store.ManagedSessionMaker() as session:
            rows = session.execute(query.order_by(_runs.c.run_uuid).limit(_PAGE))
            return list(rows.scalars())


def _on_connect(connection: Any, _record: Any) -> None:
    # A power cut may cost the newest tags in MLflow; the ledger, which decides, is written apart.
    connection.execute("PRAGMA synchronous=NORMAL")


def _point(step: int, value: float, at_ms: int, is_nan: bool) -> MetricPoint:
    return MetricPoint(step, float("nan") if is_nan else value, at_ms)


_is_active = _runs.c.lifecycle_stage == "active"
_ids: sa.BindParameter[list[str]] = sa.bindparam("ids", expanding=True)
_ACTIVE = sa.select(_runs.c.run_uuid).where(_runs.c.run_uuid.in_(_ids), _is_active)
_END = (
    sa.update(_runs)
    .where(_runs.c.run_uuid == sa.bindparam("id"))
    .values(status=sa.bindparam("new_status"), end_time=sa.bindparam("end_ms"))
)
_REOPEN = sa.update(_runs).where(_runs.c.run_uuid == sa.bindparam("id"), _is_active).values(status="RUNNING")
_insert_tag = sqlite_insert(_tags)
_SET_TAG = _insert_tag.on_conflict_do_update(
    index_elements=["key", "run_uuid"], set_={"value": _insert_tag.excluded.value}
)
_LATEST = (
    sa.select(
        _runs.c.run_uuid,
        _latest.c.key,
        _latest.c.step,
        _latest.c.value,
        _latest.c.timestamp,
        _latest.c.is_nan,
    )
    .join_from(_runs, _latest, _latest.c.run_uuid == _runs.c.run_uuid, isouter=True)
    .where(_runs.c.run_uuid.in_(_ids), _is_active)
)
_HISTORY = sa.select(
    _metrics.c.run_uuid, _metrics.c.step, _metrics.c.value, _metrics.c.timestamp, _metrics.c.is_nan
).where(_metrics.c.run_uuid.in_(_ids), _metrics.c.key == sa.bindparam("metric"))
