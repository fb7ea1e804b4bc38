"""What must be settled before a run is submitted: pre-flight check, usage policy, image, directory, code.

Each thing is done once for all runs that share it, whichever thread comes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from airflows import ids
from airflows.backends.databricks import payload, uploads
from airflows.backends.databricks.client import Workspace, WorkspaceError
from airflows.errors import BackendUnavailableError, SpecError
from airflows.train import TrainConfig

_Value = TypeVar("_Value")

_IMAGES = "/api/2.0/ai-compute-manager/images"
_MOST_NAMES = 10
_PROBE = "command.sh"


class ImagePendingError(BackendUnavailableError):
    """A docker image is still being imported: runs of it wait."""


class Preparation:
    """Settles things in one workspace; a new one settles them anew, which does no harm."""

    def __init__(self, workspace: Workspace, environ: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._environ = environ
        self._lock = threading.RLock()
        self._settled: dict[tuple[str, str], Any] = {}

    @property
    def home(self) -> str:
        """The caller's home in the workspace."""
        return payload.home_of(self._workspace.me(), self._environ)

    def check(self, config: TrainConfig) -> None:
        """Return when the workspace would take such a run, as far as it tells; nothing is written there.

        Raises:
            SpecError: it would not.
            ImagePendingError: only the image is still on its way.
            BackendUnavailableError: nothing is known.
        """
        # What does not change the answer is left out, so that a sweep asks once.
        alike = {**config.model_dump(exclude={"parameters", "command", "idempotency_token"})}
        self._once("validate", ids.digest(alike), lambda: self._validate(config))
        self.policy(config)
        self._has_directory(config)
        wanted = payload.image_of(config)
        # A `latest` one is imported anew for the first run: what is there now says nothing.
        if wanted is not None and wanted.tag_policy != "latest":
            self.image(config)

    def settle(self, config: TrainConfig) -> None:
        """Check, and make what such a run needs: its directory of experiments, its image.

        Raises:
            SpecError: the workspace would not take such a run.
            BackendUnavailableError: nothing is known, or the image is still on its way.
        """
        self.check(config)
        directory = _directory_of(config)
        if not self._has_directory(config):
            self._once("made", directory, lambda: uploads.make_directory(self._workspace, directory))
        self.image(config)

    def _validate(self, config: TrainConfig) -> None:
        path = f"{payload.launch_dir(self.home, config, 'check', payload.hex_of('check'))}/{_PROBE}"
        try:
            answer = self._workspace.post(
                "/api/2.0/ai-training/config:validate", payload.validate_body(config, path)
            )
        except WorkspaceError as exc:
            if exc.is_disabled or exc.is_missing or exc.status == 0 or exc.status >= 500:  # noqa: PLR2004
                return
            raise
        errors = answer.get("errors") or ()
        if errors:
            first, *others = (f"{each.get('path') or 'train.yaml'}: {each.get('message')}" for each in errors)
            message = f"Databricks refuses such a run: {'; '.join([first, *others])}"
            raise SpecError(message, field=str(errors[0].get("path") or "") or None)

    def _has_directory(self, config: TrainConfig) -> bool:
        """Whether the directory that the train.yaml names, if any, is there."""
        directory = _directory_of(config)
        return not directory or self._once("directory", directory, lambda: self._is_directory(directory))

    def _is_directory(self, directory: str) -> bool:
        try:
            found = self._workspace.get("/api/2.0/workspace/get-status", path=directory)
        except WorkspaceError as exc:
            if not exc.is_missing:
                raise
            return False
        if found.get("object_type") != "DIRECTORY":
            message = f"{directory} is no directory of the workspace but a {found.get('object_type')}."
            raise SpecError(message, field="mlflow_experiment_directory")
        return True

    # Usage policy

    def policy(self, config: TrainConfig) -> str:
        """Return the id of the usage policy, empty for none.

        Raises:
            SpecError: the name does not say which.
        """
        if config.usage_policy_id is not None:
            return config.usage_policy_id.strip()
        if config.usage_policy_name is None:
            return ""
        name = config.usage_policy_name.strip()
        return self._once("policy", name, lambda: self._policy_id(name))

    def _policy_id(self, name: str) -> str:
        listed = self._policies(name)
        found = {i: n for i, n in listed if n.strip().casefold() == name.casefold()}
        field = "usage_policy_name"
        if not found:
            others = ", ".join(sorted({n for _, n in listed})[:_MOST_NAMES])
            message = f"the workspace has no usage policy {name!r}."
            raise SpecError(message, field=field, hint=f"There are: {others}." if others else None)
        if len(found) > 1:
            message = f"several usage policies are called {name!r}: {', '.join(sorted(found))}."
            raise SpecError(message, field=field, hint="Give usage_policy_id instead.")
        (policy,) = found
        if not policy:
            message = f"the workspace gives no id for the usage policy {name!r}."
            raise SpecError(message, field=field, hint="Give usage_policy_id instead.")
        return policy

    def _policies(self, name: str) -> list[tuple[str, str]]:
        found: dict[tuple[str, str], None] = {}
        tokens: set[str] = set()
        token = ""
        while True:
            query = {"page_size": 1000, "filter_by.policy_name": name}
            query |= {"page_token": token} if token else {}
            page = self._workspace.get("/api/2.0/serverless-policies", **query)
            for policy in page.get("policies") or ():
                found[str(policy.get("policy_id") or ""), str(policy.get("policy_name") or "")] = None
            token = str(page.get("next_page_token") or "")
            if not token or token in tokens:
                return list(found)
            tokens.add(token)

    # Image

    def image(self, config: TrainConfig) -> str:
        """Return the address of the docker image, empty for none; it is there for runs to use.

        Raises:
            SpecError: it never will be.
            ImagePendingError: it is still on its way into the workspace.
        """
        wanted = payload.image_of(config)
        if wanted is None:
            return ""
        url = payload.normalised_image(wanted.url)
        if wanted.tag_policy == "latest":
            credentials = {
                name: value
                for name in ("credentials_scope", "credentials_key")
                if (value := getattr(wanted, name))
            }
            body = {"docker_image_url": url, **credentials}
            self._once("register", url, lambda: self._workspace.post(_IMAGES, body))
        self._once("image", url, lambda: self._see_image(url))
        return url

    def _see_image(self, url: str) -> None:
        field = "environment.docker_image.url"
        try:
            found = self._workspace.get(f"{_IMAGES}:get", docker_image_url=url)
        except WorkspaceError as exc:
            if not exc.is_missing:
                raise
            message = f"the image {url} is not registered in the workspace."
            hint = "Register it with `databricks air register image`, or set tag_policy: latest."
            raise SpecError(message, field=field, hint=hint) from None
        state = str(found.get("state") or "")
        if state == "FAILED":
            why = f": {found['status_message']}" if found.get("status_message") else "."
            message = f"the image {url} could not be imported{why}"
            raise SpecError(message, field=field)
        if state != "AVAILABLE":
            message = f"the image {url} is not there yet: {state or 'no state'}."
            raise ImagePendingError(message)

    # Files

    def directory(self, path: str, files: Callable[[], Mapping[str, bytes]]) -> str:
        """Return a launch directory that several runs share, after making and filling it."""
        self._once("launch", path, lambda: uploads.upload_all(self._workspace, path, files()))
        return path

    def code(self, config: TrainConfig, code: Path | None) -> str:
        """Return where a code snapshot is for the nodes, empty for none; it is sent once for its content."""
        if code is None:
            return ""
        path = payload.archive_path(self.home, config, code.name, code.parent.name)
        self._once("code", path, lambda: self._send_code(path, code))
        return path

    def _send_code(self, path: str, code: Path) -> None:
        if not uploads.exists(self._workspace, path):
            uploads.upload(self._workspace, path, uploads.archive(code))

    def _once(self, kind: str, key: str, settle: Callable[[], _Value]) -> _Value:
        """Return what was settled before, else settle it now; what fails is tried again next time."""
        with self._lock:
            if (kind, key) not in self._settled:
                self._settled[kind, key] = settle()
            value: _Value = self._settled[kind, key]
            return value


def _directory_of(config: TrainConfig) -> str:
    return (config.mlflow_experiment_directory or "").strip()
