"""Models that runs log, with their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflows.testing.workspace.exchange import Request, missing
from airflows.testing.workspace.messages import Messages
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.storage import SignedStorage
from airflows.testing.workspace.tracking import ARTIFACTS
from airflows.testing.workspace.world import World

_AT = "/api/2.0/mlflow/logged-models"


class ModelsApi:
    """`/api/2.0/mlflow/logged-models/…`; the registry of Unity Catalog is not there."""

    def __init__(self, world: World, storage: SignedStorage) -> None:
        self._mlflow = world.mlflow
        self._messages = Messages(world.mlflow)
        self._storage = storage

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        for name, method, path, message, answer in (
            ("search", "POST", "/search", "SearchLoggedModels", self._search),
            ("create", "POST", "", "CreateLoggedModel", self._create),
            ("tags", "PATCH", "/{model_id}/tags", "SetLoggedModelTags", self._set_tags),
            ("params", "POST", "/{model_id}/params", "LogLoggedModelParamsRequest", self._log_params),
            ("finalize", "PATCH", "/{model_id}", "FinalizeLoggedModel", self._finalize),
            ("get", "GET", "/{model_id}", "GetLoggedModel", self._get),
        ):
            handler = self._messages.through(message, answer)
            router.add(method, f"{_AT}{path}", Route(f"mlflow/logged-models/{name}", handler))
        outputs = self._messages.through("LogOutputs", self._log_outputs)
        router.add("POST", "/api/2.0/mlflow/runs/outputs", Route("mlflow/runs/outputs", outputs))
        files = f"{_AT}/{{model_id}}/artifacts"
        router.add("GET", f"{files}/directories", Route("mlflow/logged-models/files", self.listed))
        for word, signed in (("upload", self.for_upload), ("download", self.for_download)):
            ending = f"credentials-for-{word}"
            router.add("POST", f"{files}/{ending}", Route(f"mlflow/logged-models/{ending}", signed))

    def listed(self, request: Request) -> Mapping[str, Any]:
        """List a directory of a model's files."""
        model_id = request.parts["model_id"]
        files = self._storage.listed(model_id, request.one("artifact_directory_path").strip("/"))
        return {"root_uri": self._root(model_id), "files": [files[name] for name in sorted(files)]}

    def for_upload(self, request: Request) -> Mapping[str, Any]:
        """Sign addresses to store at."""
        return self._credentials(request, "PUT")

    def for_download(self, request: Request) -> Mapping[str, Any]:
        """Sign addresses to fetch from."""
        return self._credentials(request, "GET")

    def _credentials(self, request: Request, method: str) -> Mapping[str, Any]:
        model_id = request.parts["model_id"]
        self._root(model_id)
        infos = self._storage.credentials(method, model_id, request.json().get("paths") or [])
        return {"credentials": [{"model_id": model_id, "credential_info": info} for info in infos]}

    def _root(self, model_id: str) -> str:
        with self._mlflow.lock:
            try:
                return str(self._mlflow.store.get_logged_model(model_id).artifact_location)
            except self._mlflow.exceptions.MlflowException as exc:
                raise missing(str(exc)) from None

    def _search(self, asked: Any, answered: Any, _request: Request) -> None:
        found = self._messages.store.search_logged_models(
            experiment_ids=list(asked.experiment_ids),
            filter_string=asked.filter or None,
            max_results=asked.max_results or None,
            page_token=asked.page_token or None,
        )
        answered.models.extend([model.to_proto() for model in found])
        if found.token:
            answered.next_page_token = found.token

    def _create(self, asked: Any, answered: Any, _request: Request) -> None:
        entities = self._messages.entities
        made = self._messages.store.create_logged_model(
            experiment_id=asked.experiment_id,
            name=asked.name or None,
            model_type=asked.model_type,
            source_run_id=asked.source_run_id,
            params=[entities.LoggedModelParameter.from_proto(param) for param in asked.params],
            tags=[entities.LoggedModelTag(key=tag.key, value=tag.value) for tag in asked.tags],
        )
        # MLflow's own store would lay models beside runs; on Databricks they have a place of their own.
        place = f"{ARTIFACTS}/{asked.experiment_id}/logged_models/{made.model_id}"
        self._mlflow.move_model(made.model_id, place)
        answered.model.MergeFrom(self._messages.store.get_logged_model(made.model_id).to_proto())

    def _set_tags(self, asked: Any, _answered: Any, _request: Request) -> None:
        tags = [self._messages.entities.LoggedModelTag(key=tag.key, value=tag.value) for tag in asked.tags]
        self._messages.store.set_logged_model_tags(asked.model_id, tags)

    def _log_params(self, asked: Any, _answered: Any, _request: Request) -> None:
        params = [self._messages.entities.LoggedModelParameter.from_proto(param) for param in asked.params]
        self._messages.store.log_logged_model_params(asked.model_id, params)

    def _finalize(self, asked: Any, answered: Any, _request: Request) -> None:
        status = self._messages.entities.LoggedModelStatus.from_int(asked.status)
        answered.model.MergeFrom(
            self._messages.store.finalize_logged_model(asked.model_id, status).to_proto()
        )

    def _get(self, asked: Any, answered: Any, _request: Request) -> None:
        answered.model.MergeFrom(self._messages.store.get_logged_model(asked.model_id).to_proto())

    def _log_outputs(self, asked: Any, _answered: Any, _request: Request) -> None:
        models = [self._messages.entities.LoggedModelOutput.from_proto(model) for model in asked.models]
        self._messages.store.log_outputs(run_id=asked.run_id, models=models)
