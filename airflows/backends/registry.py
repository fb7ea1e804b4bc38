"""From the word in sweep.yaml to a backend. What is not used is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from airflows.backends.base import Backend
from airflows.errors import SpecError

GROUP = "airflows.backends"
"""Entry points of other packages: `name = "module:Class"`, with a settings model as `Class.Settings`."""

_OWN = {
    "local": "airflows.backends.local.backend:LocalBackend",
    "slurm": "airflows.backends.slurm.backend:SlurmBackend",
    "databricks": "airflows.backends.databricks.backend:DatabricksBackend",
    "kubernetes": "airflows.backends.kubernetes.backend:KubernetesBackend",
    "burst": "airflows.backends.burst.backend:BurstBackend",
}


def backend_names() -> list[str]:
    """Return the names of all backends that can be opened."""
    return sorted({*_OWN, *(point.name for point in entry_points(group=GROUP))})


def settings_model(name: str) -> type[BaseModel]:
    """Return the pydantic model of a backend's options.

    Raises:
        SpecError: there is no such backend.
    """
    model: type[BaseModel] = _load(name).Settings
    return model


def open_backend(settings: str | Mapping[str, Any], home: Path) -> Backend:
    """Return a backend, without asking it anything.

    Args:
        settings: `backend` of a sweep file: a name, or a mapping with `type` and options.
        home: `$AIRFLOWS_HOME`.

    Raises:
        SpecError: there is no such backend, or an option is wrong.
    """
    given = {"type": settings} if isinstance(settings, str) else dict(settings)
    name = str(given.get("type", "local"))
    kind = _load(name)
    try:
        checked = kind.Settings.model_validate(given)
    except ValidationError as exc:
        raise _as_spec_error(exc, name, kind.Settings) from exc
    backend: Backend = kind(checked, home)
    return backend


def _load(name: str) -> Any:
    if name in _OWN:
        return EntryPoint(name, _OWN[name], GROUP).load()
    for point in entry_points(group=GROUP):
        if point.name == name:
            return point.load()
    close = get_close_matches(name, backend_names(), 1)
    hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(backend_names())}."
    message = f"there is no backend {name!r}."
    raise SpecError(message, field="backend", hint=hint)


def _as_spec_error(exc: ValidationError, name: str, model: type[BaseModel]) -> SpecError:
    first = exc.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if part not in {"int", "list[str]"}]
    field = ".".join(["backend", *path])
    if first["type"] == "extra_forbidden":
        if len(path) > 1:
            return SpecError(f"there is no option {path[-1]} here.", field=field)
        close = get_close_matches(path[-1], model.model_fields, 1)
        known = f"Did you mean {close[0]}?" if close else f"Options are: {', '.join(model.model_fields)}."
        return SpecError(f"backend {name} has no option {path[-1]}.", field=field, hint=known)
    return SpecError(f"{first['msg'].removeprefix('Value error, ')}.", field=field)
