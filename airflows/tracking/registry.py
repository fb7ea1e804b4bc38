"""MLflow's model registry: versions of a model, and the alias that points at one of them.

Imports MLflow: loaded late.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from airflows.errors import NotFoundError
from airflows.tracking.trouble import asking, is_gone, is_refusal
from airflows.tracking.uris import shown_uri

_MODEL_FILE = "MLmodel"
_USUAL_NAME = "model"
_EXISTS = frozenset({"RESOURCE_ALREADY_EXISTS", "ALREADY_EXISTS"})


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a registered model. `run_id` is the run that made it, empty when not recorded."""

    number: str
    run_id: str
    tags: Mapping[str, str]


class Registry:
    """The registry that belongs to a tracking store, or the one `MLFLOW_REGISTRY_URI` names."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        with asking(uri):
            registry_uri = os.environ.get("MLFLOW_REGISTRY_URI") or None
            self._client: Any = MlflowClient(tracking_uri=uri, registry_uri=registry_uri)

    def holder(self, model: str, alias: str) -> Version | None:
        """Return the version that an alias points at, None when model or alias is not there yet."""
        with asking(self._uri), _none_when_gone():
            aliases = self._client.get_registered_model(model).aliases
            if alias in aliases:
                return _version(self._client.get_model_version(model, aliases[alias]))
        return None

    def only_model_of(self, run_id: str) -> str:
        """Return the name under which a run logged its model; of several the one named `model`.

        Raises:
            NotFoundError: it logged none, or several of other names.
        """
        with asking(self._uri):
            run = self._client.get_run(run_id)
            names = {str(logged.name) for logged in self._logged_models(run)}
            # MLflow 2 keeps them in the run.
            folders = [file.path for file in self._client.list_artifacts(run_id) if file.is_dir]
            names |= {folder for folder in folders if self._is_model(run_id, folder)}
        if len(names) == 1:
            return names.pop()
        if _USUAL_NAME in names or not names:
            return _USUAL_NAME
        listed = ", ".join(sorted(names))
        message = f"MLflow run {run_id} in {shown_uri(self._uri)} has several models: {listed}."
        raise NotFoundError(message, hint=f"Log the one that is meant under the name {_USUAL_NAME!r}.")

    def register(self, model: str, run_id: str, artifact: str) -> tuple[Version, bool]:
        """Return the version of the model that a run logged, and whether it was made now.

        Args:
            model: the registered model, made when it is not there.
            run_id: the run.
            artifact: the name under which the run logged it.

        Raises:
            NotFoundError: the run logged no such model.
        """
        with asking(self._uri):
            run = self._client.get_run(run_id)
            source, model_id = self._source(run, artifact)
            known = self._registered(model, run_id, {source, f"runs:/{run_id}/{artifact}"}, model_id)
            if known is not None:
                return known, False
            try:
                self._client.create_registered_model(model)
            except MlflowException as exc:
                if exc.error_code not in _EXISTS:
                    raise
            made = self._client.create_model_version(model, source, run_id=run_id, model_id=model_id)
            return _version(made), True

    def tag(self, model: str, version: str, tags: Mapping[str, str]) -> None:
        """Set tags of a version."""
        with asking(self._uri):
            for key, value in tags.items():
                self._client.set_model_version_tag(model, version, key, value)

    def point(self, model: str, alias: str, version: str) -> None:
        """Move an alias."""
        with asking(self._uri):
            self._client.set_registered_model_alias(model, alias, version)

    def experiment_of(self, run_id: str) -> str:
        """Return the experiment that a run is in, empty when the run is gone."""
        with asking(self._uri), _none_when_gone():
            return str(self._client.get_run(run_id).info.experiment_id)
        return ""

    def _registered(
        self, model: str, run_id: str, sources: Collection[str], model_id: str | None
    ) -> Version | None:
        """Return the newest version that was made of one model of a run, None for none."""
        quote = '"' if "'" in model else "'"
        with _none_when_gone():
            found = self._client.search_model_versions(f"name={quote}{model}{quote} and run_id='{run_id}'")
            same = [
                each for each in found if each.source in sources or (model_id and each.model_id == model_id)
            ]
            if same:
                return _version(max(same, key=lambda version: int(version.version)))
        return None

    def _source(self, run: Any, artifact: str) -> tuple[str, str | None]:
        """Return (source, id of the logged model): MLflow 3 keeps models beside runs, MLflow 2 in them."""
        for logged in self._logged_models(run):
            if logged.name == artifact:
                # By its place: a models:/ address would be looked up in the process-wide store.
                return str(logged.artifact_location), str(logged.model_id)
        if self._is_model(run.info.run_id, artifact):
            return f"{run.info.artifact_uri}/{artifact}", None
        message = f"MLflow run {run.info.run_id} in {shown_uri(self._uri)} has no model named {artifact!r}."
        hint = f"Log one in the training script: mlflow.sklearn.log_model(model, name={artifact!r})."
        raise NotFoundError(message, hint=hint)

    def _is_model(self, run_id: str, folder: str) -> bool:
        files = self._client.list_artifacts(run_id, folder)
        return any(file.path.rpartition("/")[2] == _MODEL_FILE for file in files)

    def _logged_models(self, run: Any) -> list[Any]:
        wanted = f"source_run_id = '{run.info.run_id}'"
        try:
            found = list(self._client.search_logged_models([run.info.experiment_id], wanted))
        except MlflowException as exc:
            # A server of MLflow 2 has no logged models.
            if not (is_gone(exc) or is_refusal(exc)):
                raise
            return []
        return sorted(found, key=lambda model: -model.creation_timestamp)


def _version(found: Any) -> Version:
    return Version(str(found.version), found.run_id or "", dict(found.tags))


@contextmanager
def _none_when_gone() -> Iterator[None]:
    try:
        yield
    except MlflowException as exc:
        if not is_gone(exc):
            raise
