"""Projects to start from: the files of `airflows init`. Pure but for reading the package's own files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files

from airflows import spec, train

TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "torch": ("mlflow-skinny", "torch"),
    "lightning": ("mlflow-skinny", "lightning"),
    "huggingface": ("accelerate", "mlflow-skinny", "torch", "transformers"),
}
"""What each template's training script imports, by the template's name."""

_NAME, _DEPENDENCIES = "PROJECT", "DEPENDENCIES"
_COMMON = ("train.yaml", "sweep.yaml", "prefect.yaml", "flows/sweep.py")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 64


def project_files(template: str, name: str) -> dict[str, str]:
    """Return the files of a new project by path.

    Args:
        template: one of `TEMPLATES`.
        name: of the sweep and of the MLflow experiment, as a sweep.yaml takes it.
    """
    package = files("airflows").joinpath("templates")
    made = {"train.py": package.joinpath(template, "train.py").read_text("utf-8")}
    for path in _COMMON:
        text = package.joinpath("project", path).read_text("utf-8")
        made[path] = text.replace(_DEPENDENCIES, f"[{', '.join(TEMPLATES[template])}]").replace(_NAME, name)
    made[".gitignore"] = package.joinpath("project", "gitignore").read_text("utf-8")
    for kind, schema in (("train", train.json_schema()), ("sweep", spec.json_schema())):
        made[f".schemas/{kind}.schema.json"] = json.dumps(schema, indent=2) + "\n"
    return made


def name_for(directory: str) -> str:
    """Return the name that a directory gives its project; "sweep" when nothing in it can be part of one."""
    return _NOT_IN_NAMES.sub("-", directory).strip("-_")[:_LONGEST_NAME] or "sweep"
