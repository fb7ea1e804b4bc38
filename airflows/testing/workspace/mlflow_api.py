"""MLflow's REST endpoints, answered by MLflow's own store through its own messages."""

from __future__ import annotations

from typing import Any

from airflows.testing.workspace.exchange import ApiError, Request, invalid
from airflows.testing.workspace.messages import Messages
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.world import World

_AT = "/api/2.0/mlflow"


class MlflowApi:
    """Experiments, runs, metrics, params and tags."""

    def __init__(self, world: World) -> None:
        self._messages = Messages(world.mlflow)

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        for methods, path, message, answer in (
            ("POST", "experiments/create", "CreateExperiment", self._create_experiment),
            ("GET", "experiments/get", "GetExperiment", self._get_experiment),
            ("GET", "experiments/get-by-name", "GetExperimentByName", self._get_experiment_by_name),
            ("POST GET", "experiments/search", "SearchExperiments", self._search_experiments),
            ("POST", "experiments/delete", "DeleteExperiment", self._delete_experiment),
            ("POST", "experiments/set-experiment-tag", "SetExperimentTag", self._set_experiment_tag),
            ("POST", "runs/create", "CreateRun", self._create_run),
            ("GET", "runs/get", "GetRun", self._get_run),
            ("POST", "runs/update", "UpdateRun", self._update_run),
            ("POST", "runs/delete", "DeleteRun", self._delete_run),
            ("POST", "runs/restore", "RestoreRun", self._restore_run),
            ("POST", "runs/search", "SearchRuns", self._search_runs),
            ("POST", "runs/log-metric", "LogMetric", self._log_metric),
            ("POST", "runs/log-parameter", "LogParam", self._log_param),
            ("POST", "runs/log-batch", "LogBatch", self._log_batch),
            ("POST", "runs/log-inputs", "LogInputs", self._log_inputs),
            ("POST", "runs/set-tag", "SetTag", self._set_tag),
            ("POST", "runs/delete-tag", "DeleteTag", self._delete_tag),
            ("GET", "metrics/get-history", "GetMetricHistory", self._get_history),
        ):
            router.add(
                methods, f"{_AT}/{path}", Route(f"mlflow/{path}", self._messages.through(message, answer))
            )

    def _create_experiment(self, asked: Any, answered: Any, _request: Request) -> None:
        name = _experiment_name(asked.name)
        tags = [self._messages.entities.ExperimentTag(tag.key, tag.value) for tag in asked.tags]
        location = asked.artifact_location or None
        answered.experiment_id = self._messages.store.create_experiment(name, location, tags)

    def _get_experiment(self, asked: Any, answered: Any, _request: Request) -> None:
        answered.experiment.MergeFrom(self._messages.store.get_experiment(asked.experiment_id).to_proto())

    def _get_experiment_by_name(self, asked: Any, answered: Any, _request: Request) -> None:
        found = self._messages.store.get_experiment_by_name(asked.experiment_name.removeprefix("/Workspace"))
        if found is None:
            message = f"Node named '{asked.experiment_name}' does not exist."
            raise ApiError(404, "RESOURCE_DOES_NOT_EXIST", message)
        answered.experiment.MergeFrom(found.to_proto())

    def _search_experiments(self, asked: Any, answered: Any, _request: Request) -> None:
        found = self._messages.store.search_experiments(
            view_type=asked.view_type or self._messages.entities.ViewType.ACTIVE_ONLY,
            max_results=asked.max_results or 1000,
            order_by=list(asked.order_by),
            filter_string=asked.filter,
            page_token=asked.page_token or None,
        )
        answered.experiments.extend([experiment.to_proto() for experiment in found])
        if found.token:
            answered.next_page_token = found.token

    def _delete_experiment(self, asked: Any, _answered: Any, _request: Request) -> None:
        self._messages.store.delete_experiment(asked.experiment_id)

    def _set_experiment_tag(self, asked: Any, _answered: Any, _request: Request) -> None:
        tag = self._messages.entities.ExperimentTag(asked.key, asked.value)
        self._messages.store.set_experiment_tag(asked.experiment_id, tag)

    def _create_run(self, asked: Any, answered: Any, request: Request) -> None:
        tags = [self._messages.entities.RunTag(tag.key, tag.value) for tag in asked.tags]
        made = self._messages.store.create_run(
            asked.experiment_id, asked.user_id or request.user.name, asked.start_time, tags, asked.run_name
        )
        answered.run.MergeFrom(made.to_proto())

    def _get_run(self, asked: Any, answered: Any, _request: Request) -> None:
        answered.run.MergeFrom(self._messages.store.get_run(asked.run_id or asked.run_uuid).to_proto())

    def _update_run(self, asked: Any, answered: Any, _request: Request) -> None:
        status, end, name = (
            getattr(asked, field) if asked.HasField(field) else None
            for field in ("status", "end_time", "run_name")
        )
        run_id = asked.run_id or asked.run_uuid
        answered.run_info.MergeFrom(
            self._messages.store.update_run_info(run_id, status, end, name).to_proto()
        )

    def _delete_run(self, asked: Any, _answered: Any, _request: Request) -> None:
        self._messages.store.delete_run(asked.run_id)

    def _restore_run(self, asked: Any, _answered: Any, _request: Request) -> None:
        self._messages.store.restore_run(asked.run_id)

    def _search_runs(self, asked: Any, answered: Any, _request: Request) -> None:
        view = self._messages.entities.ViewType
        found = self._messages.store.search_runs(
            list(asked.experiment_ids),
            asked.filter,
            view.from_proto(asked.run_view_type) if asked.HasField("run_view_type") else view.ACTIVE_ONLY,
            asked.max_results,
            list(asked.order_by),
            asked.page_token or None,
        )
        answered.runs.extend([run.to_proto() for run in found])
        if found.token:
            answered.next_page_token = found.token

    def _log_metric(self, asked: Any, _answered: Any, _request: Request) -> None:
        metric = self._messages.entities.Metric(asked.key, asked.value, asked.timestamp, asked.step)
        self._messages.store.log_metric(asked.run_id or asked.run_uuid, metric)

    def _log_param(self, asked: Any, _answered: Any, _request: Request) -> None:
        param = self._messages.entities.Param(asked.key, asked.value)
        self._messages.store.log_param(asked.run_id or asked.run_uuid, param)

    def _log_batch(self, asked: Any, _answered: Any, _request: Request) -> None:
        entities = self._messages.entities
        self._messages.store.log_batch(
            asked.run_id,
            metrics=[entities.Metric.from_proto(metric) for metric in asked.metrics],
            params=[entities.Param.from_proto(param) for param in asked.params],
            tags=[entities.RunTag.from_proto(tag) for tag in asked.tags],
        )

    def _log_inputs(self, asked: Any, _answered: Any, _request: Request) -> None:
        datasets = [self._messages.entities.DatasetInput.from_proto(dataset) for dataset in asked.datasets]
        self._messages.store.log_inputs(asked.run_id, datasets=datasets)

    def _set_tag(self, asked: Any, _answered: Any, _request: Request) -> None:
        tag = self._messages.entities.RunTag(asked.key, asked.value)
        self._messages.store.set_tag(asked.run_id or asked.run_uuid, tag)

    def _delete_tag(self, asked: Any, _answered: Any, _request: Request) -> None:
        self._messages.store.delete_tag(asked.run_id, asked.key)

    def _get_history(self, asked: Any, answered: Any, _request: Request) -> None:
        most = asked.max_results if asked.HasField("max_results") else None
        run_id = asked.run_id or asked.run_uuid
        found = self._messages.store.get_metric_history(
            run_id, asked.metric_key, max_results=most, page_token=asked.page_token or None
        )
        answered.metrics.extend([metric.to_proto() for metric in found])
        if found.token:
            answered.next_page_token = found.token


def _experiment_name(name: str) -> str:
    """Return an experiment's path: Databricks has them in its workspace, and nowhere else."""
    if not name.startswith("/") or name.endswith("/"):
        message = (
            f"Got an invalid experiment name '{name}'. An experiment name must be an absolute path within "
            "the Databricks workspace, e.g. '/Users/<some-username>/my-experiment'."
        )
        raise invalid(message)
    return name.removeprefix("/Workspace")
