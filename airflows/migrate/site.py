"""Directives that belong to a cluster: kept as settings of the Slurm backend, and told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflows.migrate import grammar
from airflows.migrate.directives import Directive, Header
from airflows.migrate.facts import export_of
from airflows.migrate.options import PYXIS
from airflows.migrate.report import Report
from airflows.migrate.resources import Resources

_SETTINGS = ("partition", "account", "qos", "constraint", "reservation")
_CARRIED = frozenset(
    """
    array chdir comment cpus-per-gpu cpus-per-task error export gpus gpus-per-node gpus-per-task gres
    ignore-pbs job-name mem mem-per-cpu mem-per-gpu no-requeue nodes ntasks ntasks-per-gpu ntasks-per-node
    open-mode output parsable quiet requeue signal time tres-per-task verbose
    """.split()  # noqa: SIM905
)
# What says when or whether a job runs, once: repeated with every trial and retry it would do harm.
_ONCE: Mapping[str, str] = {
    "begin": "airflows starts trials at once. Start the sweep later, with at, cron or a Prefect schedule",
    "deadline": "airflows knows no deadline. limits.wall_time of a sweep.yaml says when nothing new starts",
    "dependency": "airflows knows no other jobs. Start it after them: airflows run X && airflows run Y",
    "kill-on-invalid-dep": "it goes with --dependency",
    "hold": "airflows starts trials at once. Start it when it should run",
    "clusters": "the backend submits to the cluster that sbatch is set up for",
    "get-user-env": "the job gets PATH, HOME, LANG and what backend.inherit lists",
    "input": "the command reads nothing from stdin. Write `< file` behind the program",
    "export-file": "put the variables under env_variables of train.yaml",
    "wrap": "it has no effect in a directive",
    "test-only": "airflows sweep --dry-run shows what would run",
    "wait": "airflows run and airflows sweep wait anyway",
    "wait-all-nodes": "it has no counterpart",
    "uid": "trials run as the user who submits them",
    "gid": "trials run as the user who submits them",
    "umask": "write umask into the command",
}


_CHOICES: Mapping[str, frozenset[str]] = {
    "exclusive": frozenset({"USER", "MCS", "TOPO"}),
    "open-mode": frozenset({"APPEND", "TRUNCATE"}),
    "mail-type": frozenset(
        """
        ALL ARRAY_TASKS BEGIN END FAIL INVALID_DEPEND NONE REQUEUE STAGE_OUT TIME_LIMIT TIME_LIMIT_50
        TIME_LIMIT_80 TIME_LIMIT_90
        """.split()  # noqa: SIM905
    ),
}


def settings(header: Header, resources: Resources, *, is_array: bool, report: Report) -> dict[str, Any]:
    """Return what `backend` of a sweep.yaml takes of the directives, and report what is lost elsewhere.

    Args:
        header: the directives.
        resources: what they ask for.
        is_array: there will be a sweep.yaml.
        report: gets a warning for each directive that has no place in a train.yaml.
    """
    made: dict[str, Any] = {"type": "slurm"}
    extra: list[str] = []
    for directive in _counting(header):
        name = directive.name
        if not directive.value.isprintable():
            _tell(directive, "it holds characters that are not printable.", report)
        elif name in _SETTINGS and not set(directive.value) & set('"\\'):
            made[name] = directive.value
            _tell_kept(directive, f"backend.{name}", is_array=is_array, report=report)
        elif name in _ONCE:
            _tell(directive, f"{_ONCE[name]}.", report)
        elif name.startswith("mail-"):
            message = (
                "airflows sends no mail. `airflows watch` shows what happens; flows in Prefect can notify."
            )
            report.warn("mail", directive.line, message, directive.option)
        elif name not in _CARRIED and name not in PYXIS and not name.startswith("container"):
            extra.append(written(directive))
            _tell_kept(directive, "backend.extra", is_array=is_array, report=report)
    made |= _amounts(header, resources)
    if extra:
        made["extra"] = extra
    signal = header.last("signal")
    read = grammar.signal(signal.value) if signal is not None else None
    if read is not None:
        made["grace"] = f"{read[1]}s"
    return made


def _counting(header: Header) -> list[Directive]:
    """Return the directives that count, each option once, in the order of the script."""
    by_name = {directive.name: directive for directive in header.components[0]}
    return sorted(by_name.values(), key=lambda directive: directive.line)


def written(directive: Directive) -> str:
    """Return a directive as it may stand after #SBATCH."""
    if not directive.value:
        return directive.option
    plain = not any(char in directive.value for char in " \t#\"'")
    quote = "" if plain else "'" if '"' in directive.value else '"'
    return f"{directive.option}={quote}{directive.value}{quote}"


def _tell_kept(directive: Directive, place: str, *, is_array: bool, report: Report) -> None:
    if is_array:
        message = (
            f"{directive.written} means something to this cluster only. It is kept for Slurm as {place} of"
            " sweep.yaml."
        )
    else:
        message = (
            f"{directive.written} means something to this cluster only, and a train.yaml holds for"
            " all backends."
            f" It is {place} of a sweep.yaml, which `airflows sweep` runs."
        )
    report.warn(directive.name, directive.line, message, directive.option)


def _tell(directive: Directive, message: str, report: Report) -> None:
    report.warn(
        directive.name,
        directive.line,
        f"{directive.written} is not carried over: {message}",
        directive.option,
    )


def _amounts(header: Header, resources: Resources) -> dict[str, Any]:
    """Return CPUs, memory and GPUs as the backend takes them."""
    made: dict[str, Any] = {}
    if resources.cpus_per_node is not None:
        made["cpus"] = resources.cpus_per_node
    if resources.mem_per_node_mb is not None:
        made["memory"] = _memory_text(resources.mem_per_node_mb)
    if resources.gpu_type is not None:
        made["gpu_type"] = _as_spelled(header, resources.gpu_type)
    if resources.gpus_per_node is not None and header.last("gpus-per-node") is not None:
        made["gpu_style"] = "gpus-per-node"
    return made


def _memory_text(mebibytes: int) -> str:
    if not mebibytes:
        return "0"
    return f"{mebibytes >> 10}G" if mebibytes % (1 << 10) == 0 else f"{mebibytes}M"


def _as_spelled(header: Header, kind: str) -> str:
    """Return a GPU type with the capitals of the script."""
    for directive in reversed(header.components[0]):
        at = directive.value.lower().find(kind)
        if directive.name in ("gres", "gpus", "gpus-per-node", "gpus-per-task", "tres-per-task") and at >= 0:
            return directive.value[at : at + len(kind)]
    return kind


def _remark_choices(header: Header, report: Report) -> None:
    for directive in header.components[0]:
        known = _CHOICES.get(directive.name)
        given = {word.upper() for word in directive.value.split(",") if word}
        if known is not None and not given <= known:
            message = f"sbatch refuses {directive.written}: it takes {', '.join(sorted(known)).lower()}."
            report.warn("invalid", directive.line, message, directive.option)


def remarks(header: Header, resources: Resources, report: Report) -> None:
    """Report values that a train.yaml cannot hold exactly."""
    _remark_choices(header, report)
    _remark_paths(header, report)
    _remark_amounts(header, resources, report)
    _remark_environment(header, report)
    signal = header.last("signal")
    if signal is not None and grammar.signal(signal.value) is None:
        message = f"sbatch refuses {signal.written}: it is no signal with a time."
        report.warn("invalid", signal.line, message, signal.option)
    elif signal is not None:
        report.warn(
            "signal",
            signal.line,
            "airflows gives the command SIGTERM when its time is nearly up or it is preempted, and"
            " the time of"
            " backend.grace to save; $AIRFLOWS_RESUME_FROM names the newest checkpoint when it starts again."
            " Let the program save on SIGTERM.",
            signal.option,
        )
    if header.het_line:
        report.warn(
            "hetjob",
            header.het_line,
            "All nodes of a trial are alike, so a heterogeneous job cannot be one trial: what is written here"
            " asks for the first component only. Make the components trials of their own, or take the larger"
            " one for all nodes.",
        )


def _remark_paths(header: Header, report: Report) -> None:
    for name in ("output", "error", "input"):
        directive = header.last(name)
        if directive is not None and "%" in directive.value:
            report.warn(
                "output-pattern",
                directive.line,
                f"{directive.written} is not carried over: every attempt has a log of its own."
                " Read it with `airflows logs SWEEP/NUMBER`.",
                directive.option,
            )


def _remark_amounts(header: Header, resources: Resources, report: Report) -> None:
    time, nodes, gpus = header.last("time"), header.last("nodes"), header.last("gpus")
    if time is not None and resources.time_minutes == 0:
        message = "No time limit is no timeout_minutes. Set one: a trial that hangs would run for ever."
        report.warn("time-unlimited", time.line, message, time.option)
    if nodes is not None and resources.nodes_max is not None:
        message = (
            f"A train.yaml has one number of nodes; the least was taken, {resources.nodes}."
            f" Up to {resources.nodes_max} were allowed: change compute.num_accelerators."
        )
        report.warn("nodes-range", nodes.line, message, nodes.option)
    if gpus is not None and not header.last("gpus-per-node", "gres", "gpus-per-task"):
        message = (
            "GPUs for the whole job, which Slurm may spread unevenly, are taken as"
            f" {resources.gpus_per_node} on each of {resources.nodes}"
            f" node{'s' if resources.nodes > 1 else ''}."
            " If that is not meant, change compute."
        )
        report.warn("gpus-total", gpus.line, message, gpus.option)
    _remark_generic(header, report)
    _remark_spread(header, resources, report)


def _remark_generic(header: Header, report: Report) -> None:
    gres = header.last("gres")
    others = [
        piece
        for piece in (gres.value.split(",") if gres else ())
        if piece.strip().lower().partition(":")[0].removeprefix("gres/") not in ("gpu", "none")
    ]
    if gres is not None and others:
        message = (
            f"{', '.join(others)} is not carried over: only GPUs are. Ask for it with backend.extra on Slurm."
        )
        report.warn("gres", gres.line, message, gres.option)
    socket = header.last("gpus-per-socket")
    if socket is not None:
        message = "GPUs for each socket are taken for one socket a node. Check compute."
        report.warn("gpus-per-socket", socket.line, message, socket.option)


def _remark_spread(header: Header, resources: Resources, report: Report) -> None:
    tasks = header.last("ntasks")
    if tasks is None or header.last("nodes", "ntasks-per-node") or resources.tasks_per_node == 1:
        return
    report.note(
        "tasks",
        tasks.line,
        f"{tasks.written} without --nodes may be spread over any number of nodes; one node is taken.",
        tasks.option,
    )


def _remark_environment(header: Header, report: Report) -> None:
    export = header.last("export")
    whole, _, names = export_of(export)
    if export is not None and not whole:
        kept = f" {', '.join(names)} must be given under env_variables or backend.inherit." if names else ""
        report.warn(
            "export-none",
            export.line,
            "Trials never get the whole environment of the one who submits them: only PATH, HOME, LANG,"
            f" env_variables of train.yaml and what backend.inherit lists.{kept}",
            export.option,
        )
    for directive in header.components[0]:
        if directive.name in PYXIS or directive.name in ("container", "container-id"):
            report.warn(
                "container",
                directive.line,
                "A container image is environment.docker_image of train.yaml; on Slurm backend.container says"
                " what runs it, and backend.container_mounts what it sees.",
                directive.option,
            )
