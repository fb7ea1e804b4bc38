"""From a script that runs once, with srun for its processes, to a command for every node. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from airflows.migrate.edits import Edit
from airflows.migrate.programs import Srun, srun_of
from airflows.migrate.report import Report
from airflows.migrate.resources import Resources
from airflows.migrate.shell import names
from airflows.migrate.shell.tree import Command, Function, Item, Script, Simple
from airflows.migrate.shell.words import literal
from airflows.migrate.steps import PLUMBING
from airflows.migrate.trace import end_of

# Options of srun that make a step run somewhere else, or as something else, than all tasks of the job.
_PARTICULAR = frozenset(
    """
    nodelist exclude relative nodefile multi-prog het-group pack-group input chdir mpi uid gid
    bcast overcommit
    """.split()  # noqa: SIM905
)
_THIS_JOB = frozenset({"$SLURM_JOB_ID", "$SLURM_JOBID", "${SLURM_JOB_ID}", "${SLURM_JOBID}"})
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task", "gres")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?", re.ASCII)
_OPTIONS = re.compile(r"[\s\"'\\]*-")
_EACH_NODE = PLUMBING | {"mkdir", ":", "scontrol", "ulimit"}
_FIRST = 'if [ "$NODE_RANK" = 0 ]; then'


@dataclass(slots=True)
class NodeEdits:
    """What changes so that the command may run on every node.

    Attributes:
        edits: of the script.
        uses: functions that the command needs: `each_task`, `first_node`.
        gpus_per_task: GPUs that srun gives each task alone, 0 for all of the node's.
        first_only: the whole script ran on the first node only.
        keeps_srun: it goes on doing so, and starts the others by srun.
    """

    edits: list[Edit] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    gpus_per_task: int = 0
    first_only: bool = False
    keeps_srun: bool = False


@dataclass(frozen=True, slots=True)
class _Shape:
    nodes: int
    tasks: int
    gpus_per_task: int = 0


def node_edits(script: Script, resources: Resources, gpus_per_task: int, report: Report) -> NodeEdits:
    """Return what takes srun off, and keeps what ran on the first node only there.

    Args:
        script: its tree.
        resources: what the job gets.
        gpus_per_task: of the directives, 0 when not given.
        report: gets the calls of srun that stay.
    """
    editor = _Editor(script, resources, gpus_per_task, report)
    has_srun = False
    for item in script.items:
        inside = list(_commands(item))
        edited = [editor.take_off(item, command) for command in inside if isinstance(command, Simple)]
        has_srun = has_srun or any(edited)
        if resources.nodes > 1 and _ran_on_first_node(script, item, inside):
            _wrap(script, item, editor.made)
    if resources.nodes > 1 and (editor.made.keeps_srun or not has_srun):
        # Either all of it runs everywhere, or it stays the batch script that it was.
        return NodeEdits(first_only=True, keeps_srun=editor.made.keeps_srun)
    return editor.made


def _commands(item: Item) -> Iterator[Command]:
    for pipeline in item.pipelines:
        for command in pipeline.commands:
            yield from names.walk(command)


@dataclass(slots=True)
class _Editor:
    script: Script
    resources: Resources
    gpus_per_task: int
    report: Report
    made: NodeEdits = field(default_factory=NodeEdits)

    def take_off(self, item: Item, command: Simple) -> bool:
        """Take srun off a command where that is right; return whether it has one."""
        if srun_of([word.text for word in command.words]) is None:
            return False
        words = self._with_options(command) or []
        srun = srun_of([text for text, _ in words])
        shape = None if srun is None else _shape(srun, self.resources, self.gpus_per_task)
        if srun is None or shape is None or not self._may_go(shape, item, command):
            self._keep(command)
            return True
        program = words[srun.program][1] if srun.program < len(words) else len(command.words)
        if program == len(command.words) or command.words[program].text != words[srun.program][0]:
            # There is none, or a variable holds it together with options.
            self._keep(command)
            return True
        is_function = shape.tasks > 1 or shape.nodes < self.resources.nodes
        # A function cannot be what `exec` or `nohup` starts.
        first = 0 if is_function else srun.start
        prefix = f"{self._functions(shape)}{_environment_of(srun)}"
        self.made.edits.append(Edit(command.words[first].start, command.words[program].start, prefix))
        return True

    def _with_options(self, command: Simple) -> list[tuple[str, int]] | None:
        """Return the words with their places, options in the place of a variable that holds some.

        None when it is not known which options those are.
        """
        words: list[tuple[str, int]] = []
        for at, word in enumerate(command.words):
            found = _VARIABLE.fullmatch(word.text)
            srun = srun_of([text for text, _ in words])
            is_before_program = srun is not None and srun.program >= len(words)
            values = self._values(found[1]) if found is not None and is_before_program else []
            if not any(_OPTIONS.match(value) for value in values):
                words.append((word.text, at))
                continue
            held = literal(values[0]) if len(values) == 1 else None
            if held is None:
                return None
            words += [(text, at) for text in held.split()]
        return words

    def _values(self, name: str) -> list[str]:
        """Return what the script gives a variable, as it is written."""
        commands = names.commands_of(self.script.items)
        assigns = (assign for each in commands if isinstance(each, Simple) for assign in each.assigns)
        return [assign.value.text for assign in assigns if assign.name == name]

    def _may_go(self, shape: _Shape, item: Item, command: Simple) -> bool:
        is_fed = any(redirect.op.startswith("<") for redirect in command.redirects)
        is_one_of_several = shape.nodes < self.resources.nodes and item.background
        return not is_one_of_several and not (shape.tasks > 1 and is_fed)

    def _functions(self, shape: _Shape) -> str:
        """Return what the program is called by."""
        called = ""
        if shape.nodes < self.resources.nodes:
            self.made.uses.add("first_node")
            called = "first_node "
        if shape.tasks > 1:
            self.made.uses.add("each_task")
            self.made.gpus_per_task = max(self.made.gpus_per_task, shape.gpus_per_task)
            called += f"each_task {shape.tasks} "
        return called

    def _keep(self, command: Simple) -> None:
        self.made.keeps_srun = True
        self.report.note(
            "srun-kept",
            self.script.line(command.start),
            "srun stays here, because it starts something else than the same on all nodes. The line works on"
            " Slurm only.",
        )


def _environment_of(srun: Srun) -> str:
    given = [word for word in srun.options.get("export", "").split(",") if "=" in word]
    return f"env {' '.join(given)} " if given else ""


def _shape(srun: Srun, resources: Resources, gpus_per_task: int) -> _Shape | None:
    """Return on how many nodes how many processes are started, None when that is not the same everywhere."""
    options = srun.options
    if srun.is_heterogeneous or _PARTICULAR & options.keys() or options.get("export", "").upper() == "NONE":
        return None
    if not {options[name] for name in ("jobid", "job-id") if name in options} <= _THIS_JOB:
        return None
    known = {
        "$SLURM_NTASKS": resources.nodes * resources.tasks_per_node,
        "$SLURM_NPROCS": resources.nodes * resources.tasks_per_node,
        "$SLURM_NNODES": resources.nodes,
        "$SLURM_JOB_NUM_NODES": resources.nodes,
        "$SLURM_NTASKS_PER_NODE": resources.tasks_per_node,
    }
    amounts: dict[str, int] = {}
    for name in ("ntasks", "nodes", "ntasks-per-node"):
        if name in options:
            text = options[name].replace("${", "$").replace("}", "")
            number = known.get(text, int(text) if text.isdigit() else 0)
            if not number:
                return None
            amounts[name] = number
    return _spread(amounts, resources, _own_gpus(options), gpus_per_task)


def _own_gpus(given: Mapping[str, str]) -> tuple[str, int] | None:
    """Return (option, count) of the GPUs that a step asks for itself; a count of -1 is not understood."""
    for name in _GPU_OPTIONS:
        if name in given:
            text = given[name].rpartition(":")[2]
            return name, int(text) if text.isdigit() else 1 if given[name] == "gpu" else -1
    return None


def _spread(
    amounts: dict[str, int], resources: Resources, own: tuple[str, int] | None, gpus_per_task: int
) -> _Shape | None:
    tasks = amounts.get("ntasks")
    nodes = amounts.get("nodes") or (min(resources.nodes, tasks) if tasks else resources.nodes)
    if nodes not in (1, resources.nodes) or (tasks is not None and tasks % nodes):
        return None
    each = amounts.get("ntasks-per-node") or (tasks // nodes if tasks else resources.tasks_per_node)
    has = resources.gpus_per_node or 0
    for_task = gpus_per_task
    if own is not None:
        name, count = own
        in_node = count * each if name == "gpus-per-task" else count // nodes if name == "gpus" else count
        if count < 0 or in_node < has:
            return None
        for_task = count if name == "gpus-per-task" else for_task
    return _Shape(nodes, each, for_task)


# What ran on the first node only


def _ran_on_first_node(script: Script, item: Item, inside: list[Command]) -> bool:
    """Whether an entry starts programs without srun, which the batch script did on its own node alone."""
    if isinstance(item.command, Function):
        return False
    works = False
    for command in inside:
        if not isinstance(command, Simple):
            continue
        words = [word.text for word in command.words]
        if srun_of(words) is not None or words[:1] == ["wait"]:
            return False
        works = works or (bool(words) and words[0] not in _EACH_NODE)
    sets = set().union(*(names.assigned(script.text, command) for command in inside)) if inside else set()
    return works and not sets


def _wrap(script: Script, item: Item, made: NodeEdits) -> None:
    end = max(item.stop, end_of(script, item))
    made.edits.append(Edit(item.start, item.start, f"{_FIRST}\n  "))
    made.edits.append(Edit(end, end, "\nfi" if script.text[end : end + 1] in ("\n", "") else "\nfi\n"))
