"""What a script asks for and does, as `migrate -o json` tells it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflows.migrate import grammar
from airflows.migrate.directives import Directive, Header, last
from airflows.migrate.grammar import Array
from airflows.migrate.resources import Resources
from airflows.migrate.steps import Body

PLACEMENT = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation", "licenses")
_AS_WRITTEN = ("comment", "chdir", "output", "error", "input", "dependency")


def export_of(directive: Directive | None) -> tuple[bool, dict[str, str], list[str]]:
    """Return (everything is passed on, variables with values, names) of `--export`."""
    if directive is None:
        return True, {}, []
    words = [word.strip() for word in directive.value.split(",") if word.strip()]
    whole = any(word.upper() == "ALL" for word in words)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word and word.upper() not in ("ALL", "NONE", "NIL")]
    return whole, given, names


def carried(
    header: Header,
    resources: Resources,
    array: Array | None,
    body: Body | None,
    params: Mapping[str, Any] | None,
    components: list[Resources],
) -> dict[str, Any]:
    """Return the facts of a script.

    Args:
        header: its directives.
        resources: what it asks for.
        array: its indices, None without an array.
        body: what it does, None when that is not understood.
        params: where the values of an array's tasks come from.
        components: the parts of a heterogeneous job.
    """
    facts = {
        "job_name": value(header, "job-name"),
        **_amounts(resources),
        "array": None if array is None else _array(array),
        **_doings(header, body),
    }
    facts |= _optional(header, resources)
    if body is not None and body.setup:
        facts["setup"] = body.setup
    if params is not None:
        facts["params"] = dict(params)
    if len(components) > 1:
        facts["components"] = [
            {
                "nodes": part.nodes,
                "tasks_per_node": part.tasks_per_node,
                "gpus_per_node": part.gpus_per_node,
            }
            for part in components
        ]
    if not is_shell(header.interpreter):
        facts["interpreter"] = header.interpreter
    return facts


def value(header: Header, name: str) -> str | None:
    """Return the value of an option as written."""
    directive = header.last(name)
    return None if directive is None else directive.value


def is_shell(interpreter: str | None) -> bool:
    """Whether the script is one for sh or bash."""
    words = [word.rpartition("/")[2] for word in (interpreter or "bash").split()]
    program = next((word for word in words if word != "env" and not word.startswith("-")), "bash")
    return program in ("bash", "sh", "dash", "ash", "ksh")


def _amounts(resources: Resources) -> dict[str, Any]:
    return {
        "nodes": resources.nodes,
        "tasks_per_node": resources.tasks_per_node,
        "cpus_per_task": resources.cpus_per_task,
        "gpus_per_node": resources.gpus_per_node,
        "gpu_type": resources.gpu_type,
        "total_gpus": resources.total_gpus,
        "mem_per_node_mb": resources.mem_per_node_mb,
        "time_minutes": resources.time_minutes,
    }


def _array(array: Array) -> dict[str, Any]:
    return {"indices": array.text, "count": array.count, "throttle": array.throttle}


def _doings(header: Header, body: Body | None) -> dict[str, Any]:
    given = export_of(header.last("export"))[1]
    if body is None:
        name = (header.interpreter or "").split("/")[-1].split()
        launcher = "python" if name and name[-1].startswith("python") else name[-1] if name else None
        doings: dict[str, Any] = {
            "env": given, "modules": [], "conda_env": None, "container": None,
            "launcher": None if is_shell(header.interpreter) else launcher, "srun": False, "command": [],
        }  # fmt: skip
        return doings
    return {
        "env": {**given, **body.env},
        "modules": body.modules,
        "conda_env": body.conda_env,
        "container": body.container.document() if body.container else None,
        "launcher": body.launcher,
        "srun": body.uses_srun,
        "command": body.commands,
    }


def _optional(header: Header, resources: Resources) -> dict[str, Any]:
    facts: dict[str, Any] = {
        name: value(header, name) for name in _AS_WRITTEN if header.last(name) is not None
    }
    if resources.nodes_max is not None:
        facts["nodes_max"] = resources.nodes_max
    if resources.cpus_per_gpu is not None:
        facts["cpus_per_gpu"] = resources.cpus_per_gpu
    requeue = header.last("requeue", "no-requeue")
    if requeue is not None:
        facts["requeue"] = requeue.name == "requeue"
    signal = header.last("signal")
    read = grammar.signal(signal.value) if signal is not None else None
    if read is not None:
        facts["signal"] = {"name": read[0], "seconds": read[1], "batch_only": read[2]}
    mail = {key: value(header, f"mail-{key}") for key in ("type", "user") if header.last(f"mail-{key}")}
    if mail:
        facts["mail"] = mail
    placement = {name: value(header, name) for name in PLACEMENT if header.last(name) is not None}
    if placement:
        facts["placement"] = placement
    return facts


def shared(components: list[list[Directive]]) -> list[list[Directive]]:
    """Return the directives of each component, with what a heterogeneous job's first one says for all."""
    name = last(components[0], "job-name")
    return [components[0], *([[name, *part] if name else part for part in components[1:]])]
