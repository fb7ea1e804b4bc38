"""Pages of the site that are made from the program itself: mkdocs calls `on_files`."""

# ruff: noqa: INP001

from __future__ import annotations

from typing import Any

import commands
import schemas
import signatures
from mkdocs.structure.files import File, Files

import airflows.train
from airflows import spec
from airflows.backends.registry import backend_names, settings_model

# Keys and options are read whole, or not found.
STYLE = """.md-typeset td code { word-break: normal; overflow-wrap: anywhere; }
.md-typeset td:first-child code { white-space: nowrap; }
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the reference pages, and the style of tables."""
    files.append(File.generated(config, "assets/pages.css", content=STYLE))
    for address, text in pages().items():
        files.append(File.generated(config, address, content=text))
    return files


def pages() -> dict[str, str]:
    """Return each made page by its address."""
    return {
        "reference/sweep-yaml.md": schemas.page(
            "sweep.yaml",
            "All keys of a sweep file, from the model that reads it; how they work together is told in"
            " [Writing a sweep.yaml](../sweeps.md). `airflows validate --schema sweep` prints the same as"
            " a JSON Schema.",
            spec.json_schema(),
        ),
        "reference/train-yaml.md": schemas.page(
            "train.yaml",
            "All keys of a train.yaml, from the model that reads it: those of Databricks AI Runtime, on every"
            " backend. `airflows validate --schema train` prints the same as a JSON Schema.",
            airflows.train.json_schema(),
        ),
        "reference/backends.md": _backends(),
        "reference/commands.md": commands.page(),
        "reference/python.md": signatures.page(),
    }


def _backends() -> str:
    about = (
        "# Options of backends\n\nWhat `backend: {type: NAME, …}` of a sweep.yaml takes, from the models that"
        " read it. `airflows backends NAME` prints the same, and whether the backend can be reached.\n"
    )
    models = {name: settings_model(name) for name in backend_names()}
    return "\n".join(
        [about, *(schemas.section(name, model.model_json_schema()) for name, model in models.items())]
    )
