"""An MLflow store in an SQLite file, written in batches and without MLflow.

Through MLflow's own calls a trial costs 14 to 20 ms in all (create, params, tags, read, end: a dozen sessions
of its ORM); in batches of ten straight into the tables 0.6 ms, one by one 2 ms. The rows are those that the
calls would have made, which a contract test holds to. Importing MLflow, with all its packages, takes a second
and 220 MB, so that only what is rare (deleting, artifacts elsewhere than in a directory) is left to it.
Imports SQLAlchemy: loaded late.
"""

from __future__ import annotations

import shutil
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from airflows.scores import MetricPoint
from airflows.tracking.loading import load
from airflows.tracking.runs import FoundRun, NewRun, RunEnd
from airflows.tracking.trouble import TrackingRefusedError, asking
from airflows.tracking.uris import shown_uri

# SQLite allows 32,766 bound values in a statement, 999 before version 3.32.
_PAGE = 500
_HISTORIES = 8
_NAME = "mlflow.runName"
_MOST_EXPERIMENT_NAME_CHARACTERS = 500


def _table(name: str, columns: str) -> sa.TableClause:
    return sa.table(name, *map(sa.column, columns.split()))


# The columns that are written or read here, of the schema that `embedded.prepare` made sure of.
_experiments = _table(
    "experiments",
    "experiment_id name artifact_location lifecycle_stage creation_time last_update_time workspace",
)
_runs = _table(
    "runs",
    "run_uuid name experiment_id artifact_uri user_id status start_time end_time lifecycle_stage "
    "source_type source_name entry_point_name source_version",
)
_tags = _table("tags", "run_uuid key value")
_params = _table("params", "run_uuid key value")
_latest = _table("latest_metrics", "run_uuid key step value timestamp is_nan")
_metrics = _table("metrics", "run_uuid key step value timestamp is_nan")


class SqlRuns:
    """The runs of an SQLite file that exists and has the schema of this MLflow."""

    def __init__(self, uri: str, artifacts: Path, user: str) -> None:
        self._uri = uri
        self._artifacts = artifacts
        self._user = user
        self.engine = sa.create_engine(uri)
        sa.event.listen(self.engine, "connect", _on_connect)
        self._location = cache(self._artifact_location)

    @cached_property
    def _mlflow(self) -> Any:
        """MLflow's own store, for what is rare."""
        store = load("mlflow.store.tracking.sqlalchemy_store")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return store.SqlAlchemyStore(self._uri, str(self._artifacts))

    def ping(self) -> None:
        """Return when the file can be read."""
        with asking(self._uri), self.engine.connect() as connection:
            connection.execute(sa.select(_experiments.c.name).limit(1)).all()

    def experiment(self, name: str) -> str:
        """Return the id of the experiment of this name, made when there is none."""
        with asking(self._uri):
            found = self._experiment_named(name)
            if found is None:
                self._make_experiment(name)
                found = self._experiment_named(name)
        if found is None or found.lifecycle_stage != "active":
            message = f"the MLflow experiment {name!r} in {shown_uri(self._uri)} was deleted."
            raise TrackingRefusedError(message, hint="Restore it, or name another as tracking.experiment.")
        return str(found.experiment_id)

    def known_experiment(self, name: str) -> str:
        """Return the id of the experiment of this name, empty for none; nothing is made."""
        with asking(self._uri):
            found = self._experiment_named(name)
        return "" if found is None or found.lifecycle_stage != "active" else str(found.experiment_id)

    def create(self, experiment_id: str, runs: Sequence[NewRun]) -> list[str]:
        """Make runs in one transaction, status RUNNING; return their ids in order."""
        if not runs:
            return []
        with asking(self._uri):
            location = self._location(experiment_id)
            ids = [uuid.uuid4().hex for _ in runs]
            named = list(zip(ids, runs, strict=True))
            rows = [self._row(run_id, run, int(experiment_id), location) for run_id, run in named]
            tags = [
                row
                for run_id, run in named
                for row in _pairs(run_id, {**run.tags, "mlflow.runName": run.name})
            ]
            params = [row for run_id, run in named for row in _pairs(run_id, run.params)]
            with self.engine.begin() as connection:
                connection.execute(sa.insert(_runs), rows)
                connection.execute(sa.insert(_tags), tags)
                if params:
                    connection.execute(sa.insert(_params), params)
        return ids

    def adopt(self, run_id: str, run: NewRun) -> None:
        """Set tags and params of a run that somebody else made, in one transaction."""
        with asking(self._uri), self.engine.begin() as connection:
            if run_id not in self._active(connection, [run_id]):
                return
            connection.execute(_SET_TAG, _pairs(run_id, run.tags))
            if run.params:
                connection.execute(_ADD_PARAM, _pairs(run_id, run.params))

    def complete(self, run_id: str, run: NewRun) -> None:
        """Do nothing: a run is made in one transaction."""

    def end(self, ends: Sequence[RunEnd]) -> None:
        """End runs and set their tags, in one transaction."""
        with asking(self._uri), self.engine.begin() as connection:
            active = self._active(connection, [end.run_id for end in ends])
            ends = [end for end in ends if end.run_id in active]
            if not ends:
                return
            over = [
                {"id": end.run_id, "new_status": end.status, "end_ms": end.end_ms}
                for end in ends
                if end.status
            ]
            if over:
                connection.execute(_END, over)
            connection.execute(_SET_TAG, [row for end in ends for row in _pairs(end.run_id, end.tags)])

    def reopen(self, run_ids: Sequence[str]) -> None:
        """Set the runs' status to RUNNING."""
        if run_ids:
            with asking(self._uri), self.engine.begin() as connection:
                connection.execute(_REOPEN, [{"id": run_id} for run_id in run_ids])

    def latest(
        self,
        experiment_id: str,  # noqa: ARG002 - run ids are unique in the file
        run_ids: Sequence[str],
    ) -> Mapping[str, Mapping[str, MetricPoint]]:
        """Return the latest value of each metric, for each of these runs that is active."""
        found: dict[str, dict[str, MetricPoint]] = {}
        with asking(self._uri), self.engine.connect() as connection:
            for start in range(0, len(run_ids), _PAGE):
                page = {"ids": list(run_ids[start : start + _PAGE])}
                for run_id, key, step, value, at_ms, is_nan in connection.execute(_LATEST, page):
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
            with asking(self._uri), self.engine.connect() as connection:
                for run_id, *values in connection.execute(_HISTORY, {"ids": list(found), "metric": metric}):
                    found[run_id].append(_point(*values))
            yield from found.items()

    def find(self, experiment_id: str, tags: Mapping[str, str]) -> Iterator[FoundRun]:
        """Yield the active runs that have all these tags, in pages ordered by id."""
        after = ""
        while page := self._page(int(experiment_id), tags, after):
            with asking(self._uri), self.engine.connect() as connection:
                rows = connection.execute(sa.select(_tags).where(_tags.c.run_uuid.in_(page))).all()
                stands = connection.execute(_STANDS, {"ids": page}).all()
            by_run: dict[str, dict[str, str]] = {run_id: {} for run_id in page}
            for row in rows:
                by_run[row.run_uuid][row.key] = row.value
            known = {run_id: (status, start_ms or 0) for run_id, status, start_ms in stands}
            yield from (FoundRun(run_id, tags, *known[run_id]) for run_id, tags in by_run.items())
            after = page[-1]

    def delete(self, run_ids: Sequence[str]) -> None:
        """Delete runs, as MLflow does it."""
        with asking(self._uri):
            for run_id in run_ids:
                self._mlflow.delete_run(run_id)

    def log_file(self, run_id: str, path: str, folder: str) -> None:
        """Store a local file as an artifact."""
        with asking(self._uri):
            with self.engine.connect() as connection:
                uri = connection.execute(
                    sa.select(_runs.c.artifact_uri).where(_runs.c.run_uuid == run_id)
                ).scalar()
            if uri is None:
                return
            directory = _local(uri)
            if directory is None:
                registry = load("mlflow.store.artifact.artifact_repository_registry")
                registry.get_artifact_repository(uri).log_artifact(path, folder or None)
                return
            target = directory / folder
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / Path(path).name)

    def _experiment_named(self, name: str) -> sa.Row[Any] | None:
        with self.engine.connect() as connection:
            return connection.execute(
                sa.select(_experiments).where(_experiments.c.name == name)
            ).one_or_none()

    def _make_experiment(self, name: str) -> None:
        if len(name) > _MOST_EXPERIMENT_NAME_CHARACTERS:
            message = f"MLflow takes at most 500 characters for an experiment's name, this has {len(name)}."
            raise TrackingRefusedError(message, hint="Shorten tracking.experiment or experiment_name.")
        now = int(time.time() * 1000)
        with self.engine.begin() as connection:
            # Another driver may have made it in the meantime.
            connection.execute(
                sqlite_insert(_experiments).on_conflict_do_nothing(),
                {
                    "name": name,
                    "lifecycle_stage": "active",
                    "creation_time": now,
                    "last_update_time": now,
                    "workspace": "default",
                },
            )
            # As its id is only known now.
            location = sa.literal(f"{self._artifacts}/") + sa.cast(_experiments.c.experiment_id, sa.Text)
            connection.execute(
                sa.update(_experiments)
                .where(_experiments.c.name == name, _experiments.c.artifact_location.is_(None))
                .values(artifact_location=location)
            )

    def _artifact_location(self, experiment_id: str) -> str:
        with self.engine.connect() as connection:
            experiment = connection.execute(
                sa.select(_experiments).where(_experiments.c.experiment_id == int(experiment_id))
            ).one_or_none()
        if experiment is None or experiment.lifecycle_stage != "active":
            named = repr(experiment.name) if experiment is not None else experiment_id
            message = f"the MLflow experiment {named} in {shown_uri(self._uri)} was deleted."
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

    def _active(self, connection: Any, run_ids: Sequence[str]) -> set[str]:
        active: set[str] = set()
        for start in range(0, len(run_ids), _PAGE):
            page = {"ids": list(run_ids[start : start + _PAGE])}
            active.update(connection.execute(_ACTIVE, page).scalars())
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
        with asking(self._uri), self.engine.connect() as connection:
            rows = connection.execute(query.order_by(_runs.c.run_uuid).limit(_PAGE))
            return list(rows.scalars())


def _on_connect(connection: Any, _record: Any) -> None:
    # A power cut may cost the newest tags in MLflow; the ledger, which decides, is written apart.
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA busy_timeout=20000")


def _local(uri: str) -> Path | None:
    """Return the directory of an artifact URI; None when it is elsewhere."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return Path(unquote(parts.path))
    return None if "://" in uri else Path(uri)


def _pairs(run_id: str, values: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the rows of a run's tags or params."""
    return [{"run_uuid": run_id, "key": key, "value": value} for key, value in values.items()]


def _point(step: int, value: float, at_ms: int, is_nan: bool) -> MetricPoint:
    return MetricPoint(step, float("nan") if is_nan else value, at_ms)


_is_active = _runs.c.lifecycle_stage == "active"
_ids: sa.BindParameter[list[str]] = sa.bindparam("ids", expanding=True)
_ACTIVE = sa.select(_runs.c.run_uuid).where(_runs.c.run_uuid.in_(_ids), _is_active)
_STANDS = sa.select(_runs.c.run_uuid, _runs.c.status, _runs.c.start_time).where(_runs.c.run_uuid.in_(_ids))
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
# What the program has logged under the same name stays.
_ADD_PARAM = sqlite_insert(_params).on_conflict_do_nothing()
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
