"""How much a script asks for: nodes, tasks, GPUs, memory, time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from airflows.migrate import grammar
from airflows.migrate.directives import Directive, last
from airflows.migrate.report import Report

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one job gets; None for what is not given, or cannot be known.

    Attributes:
        nodes: the least number of nodes.
        nodes_max: the most, where a range is given.
        tasks_per_node: processes that `srun` starts on each node.
        cpus_per_task: CPUs of each of them.
        cpus_per_gpu: CPUs for each GPU.
        gpus_per_node: GPUs of each node.
        gpu_type: their type in lower case.
        total_gpus: GPUs in all.
        mem_per_node_mb: memory in MiB; 0 is all of the node.
        time_minutes: time limit; 0 is none.
    """

    nodes: int = 1
    nodes_max: int | None = None
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    gpus_per_node: int | None = None
    gpu_type: str | None = None
    total_gpus: int | None = None
    mem_per_node_mb: int | None = None
    time_minutes: int | None = None

    @property
    def cpus_per_node(self) -> int | None:
        """CPUs of each node."""
        if self.cpus_per_task is not None:
            return self.cpus_per_task * self.tasks_per_node
        if self.cpus_per_gpu is not None and self.gpus_per_node:
            return self.cpus_per_gpu * self.gpus_per_node
        # Each task has one at least; here all of them are processes of a single task.
        return self.tasks_per_node if self.tasks_per_node > 1 else None


class _Given:
    """The directives of one component, each value read by its grammar."""

    def __init__(self, directives: Sequence[Directive], report: Report) -> None:
        self._directives = directives
        self._report = report

    def read(self, name: str, grammar_of: Callable[[str], _T | None]) -> _T | None:
        """Return the value of an option, None when it is not given or sbatch refuses it."""
        directive = last(self._directives, name)
        if directive is None:
            return None
        value = grammar_of(directive.value)
        if value is None:
            self._report.warn(
                "invalid",
                directive.line,
                f"sbatch refuses {directive.written}: {directive.value!r} is no value of it."
                " Nothing is carried over of it.",
                directive.option,
            )
        return value

    def has(self, *names: str) -> bool:
        """Whether one of these options is given."""
        return last(self._directives, *names) is not None

    def refuse(self, name: str, why: str) -> None:
        """Report an option that is right by itself and that sbatch refuses."""
        directive = last(self._directives, name)
        if directive is not None:
            message = f"sbatch refuses {directive.written}: {why}"
            self._report.warn("invalid", directive.line, message, directive.option)

    def number(self, name: str) -> int | None:
        """Return the number that an option gives."""
        return self.read(name, grammar.whole)


def resources(directives: Sequence[Directive], report: Report) -> Resources:
    """Return what the directives of a component ask for.

    Args:
        directives: in the order of the script.
        report: gets what cannot be read.
    """
    given = _Given(directives, report)
    least_most = given.read("nodes", grammar.node_range)
    tasks, per_node = given.number("ntasks"), given.number("ntasks-per-node")
    _check_together(given)
    nodes = _nodes(least_most, tasks, per_node)
    gpu = _gpus(given, nodes, tasks, per_node)
    task_count = _tasks_per_node(nodes, tasks, per_node) or _tasks_of_gpus(given, gpu)
    cpus = given.number("cpus-per-task") or _cpus_of_tres(given)
    return Resources(
        nodes=nodes,
        nodes_max=least_most[1] if least_most and least_most[1] > nodes else None,
        tasks_per_node=task_count or 1,
        cpus_per_task=cpus,
        cpus_per_gpu=given.number("cpus-per-gpu"),
        gpus_per_node=gpu.per_node,
        gpu_type=gpu.kind,
        total_gpus=gpu.total,
        mem_per_node_mb=_memory(given, gpu.per_node, (cpus or 1) * (task_count or 1)),
        time_minutes=given.read("time", grammar.minutes),
    )


def _check_together(given: _Given) -> None:
    """Report options that sbatch refuses for the company they keep."""
    memory = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if given.has(name)]
    if len(memory) > 1:
        given.refuse(memory[-1], f"--{memory[0]} excludes it.")
    has_gpus = given.has("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task")
    in_all, nodes = given.read("gpus", grammar.gpus), given.read("nodes", grammar.node_range)
    if in_all is not None and nodes is not None and in_all[0] < nodes[0]:
        given.refuse("gpus", f"that is less than one for each of {nodes[0]} nodes.")
    if given.has("mem-per-gpu") and not has_gpus:
        given.refuse("mem-per-gpu", "no GPU is asked for.")
    if given.has("gpus-per-task") and not given.has("ntasks", "gpus", "ntasks-per-node"):
        given.refuse("gpus-per-task", "--ntasks or --gpus is missing.")


def _nodes(least_most: tuple[int, int] | None, tasks: int | None, per_node: int | None) -> int:
    """Return the least number of nodes: of a range, at least what the tasks need."""
    for_tasks = -(-tasks // per_node) if tasks and per_node else 1
    if least_most is None:
        return for_tasks
    least, most = least_most
    return max(least, min(for_tasks, most))


def _tasks_per_node(nodes: int, tasks: int | None, per_node: int | None) -> int | None:
    spread = None if tasks is None else -(-tasks // nodes)
    if spread is not None and per_node is not None:
        # With a number of tasks the other option is only the most that a node may get.
        return min(spread, per_node)
    return per_node if spread is None else spread


def _tasks_of_gpus(given: _Given, gpu: _Gpus) -> int | None:
    per_gpu = given.number("ntasks-per-gpu")
    return per_gpu * gpu.per_node if per_gpu and gpu.per_node else None


def _cpus_of_tres(given: _Given) -> int | None:
    for part in (given.read("tres-per-task", str) or "").split(","):
        name, _, value = part.strip().replace(":", "=", 1).partition("=")
        if name.lower() == "cpu":
            return grammar.whole(value)
    return None


@dataclass(frozen=True, slots=True)
class _Gpus:
    per_node: int | None = None
    total: int | None = None
    kind: str | None = None


def _gpus(given: _Given, nodes: int, tasks: int | None, per_node: int | None) -> _Gpus:
    """Return the GPUs, by the most exact of the options given."""
    for name, read in (
        ("gpus-per-node", grammar.gpus),
        ("gres", grammar.gpus_of_gres),
        ("gpus-per-socket", grammar.gpus),
    ):
        found = given.read(name, read)
        if found is not None and found[0]:
            return _Gpus(found[0], found[0] * nodes, found[1])
    for_task = given.read("gpus-per-task", grammar.gpus) or _gpus_of_tres(given)
    if for_task is not None and for_task[0]:
        each = (_tasks_per_node(nodes, tasks, per_node) or 1) * for_task[0]
        return _Gpus(each, tasks * for_task[0] if tasks else each * nodes, for_task[1])
    in_all = given.read("gpus", grammar.gpus)
    if in_all is not None and in_all[0]:
        return _Gpus(-(-in_all[0] // nodes), in_all[0], in_all[1])
    return _Gpus()


def _gpus_of_tres(given: _Given) -> tuple[int, str | None] | None:
    text = given.read("tres-per-task", str)
    if text is None:
        return None
    return grammar.gpus_of_gres(text.replace("gres:", "gres/").replace("=", ":"))


def _memory(given: _Given, gpus: int | None, cpus: int) -> int | None:
    whole = given.read("mem", grammar.mebibytes)
    if whole is not None:
        return whole
    for_cpu = given.read("mem-per-cpu", grammar.mebibytes)
    if for_cpu is not None:
        return for_cpu * cpus
    for_gpu = given.read("mem-per-gpu", grammar.mebibytes)
    return None if for_gpu is None else for_gpu * (gpus or 1)
