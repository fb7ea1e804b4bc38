"""Where processes find each other: Slurm's variables give way to those of all backends. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from airflows.migrate.edits import Edit, removal
from airflows.migrate.resources import Resources
from airflows.migrate.shell import names
from airflows.migrate.shell.tree import Assign, Item, Script

_FIRST_HOST = re.compile(
    r"\$\(\s*scontrol\s+show\s+hostnames?\b[^|()]*\|\s*head\s+(?:-n\s*1|-1|--lines=1)\s*\)"
    r"|`\s*scontrol\s+show\s+hostnames?\b[^|`]*\|\s*head\s+(?:-n\s*1|-1|--lines=1)\s*`"
)
_ASKED_HOST = re.compile(r"\$\(\s*srun\b[^()]*\bhostname\b[^()]*\)")
_OWN_HOST = re.compile(r"\"?\$\(\s*hostname\b[^()]*\)\"?|`\s*hostname\b[^`]*`|\"?\$\{?HOSTNAME\}?\"?")
_HOST_LIST = re.compile(r"\(\s*\"?\$\(\s*scontrol\s+show\s+hostnames?\b[^()]*\)\"?\s*\)")
_MAIN = re.compile(r"master|head|main|rdzv|rendez|addr|leader", re.IGNORECASE)
_FROM_SLURM = re.compile(r"\bSLURM_|\bscontrol\b|\bsrun\b|\bhostname\b|\bHOSTNAME\b")
_SAME: Mapping[str, str] = {
    "SLURM_NNODES": "NUM_NODES",
    "SLURM_JOB_NUM_NODES": "NUM_NODES",
    "SLURM_NODEID": "NODE_RANK",
    "SLURM_GPUS_ON_NODE": "LOCAL_WORLD_SIZE",
}
_PORT = re.compile(r"(--(?:master|main_process)[_-]port[= ])\d+\b")
_PROCESSES = re.compile(r"(--(?:nproc[_-]per[_-]node|num_gpus)[= ])(\d+)\b")


def rendezvous_edits(script: Script, resources: Resources, per_node: int) -> list[Edit]:
    """Return what replaces Slurm's node variables.

    Args:
        script: its tree.
        resources: what the job gets.
        per_node: GPUs of a node of the accelerator type.
    """
    edits = list(_assigned(script, resources.nodes > 1))
    text = script.text
    for pattern in (_FIRST_HOST, _ASKED_HOST):
        edits += [
            Edit(*found.span(), _in_place(text, found, "$MASTER_ADDR")) for found in pattern.finditer(text)
        ]
    edits += _host_lists(script)
    same = dict(_SAME)
    if resources.tasks_per_node == 1:
        same["SLURM_PROCID"] = "NODE_RANK"
    if resources.gpus_per_node is not None:
        same["SLURM_GPUS_PER_NODE"] = "LOCAL_WORLD_SIZE"
    for name, other in same.items():
        edits += [
            Edit(found.start(1), found.end(1), other) for found in re.finditer(rf"\$\{{?({name})\b", text)
        ]
    if resources.nodes > 1:
        edits += [Edit(*found.span(), f"{found[1]}$MASTER_PORT") for found in _PORT.finditer(text)]
    if resources.gpus_per_node == per_node > 1:
        edits += [
            Edit(*found.span(), f"{found[1]}${{LOCAL_WORLD_SIZE:-{per_node}}}")
            for found in _PROCESSES.finditer(text)
            if int(found[2]) == per_node
        ]
    return edits


def _in_place(text: str, found: re.Match[str], variable: str) -> str:
    quotes = text[found.start() - 1 : found.start()] == '"'
    return variable if quotes else f'"{variable}"'


def _assigned(script: Script, has_nodes: bool) -> Iterator[Edit]:
    """Yield what drops assignments of MASTER_ADDR and MASTER_PORT, which are set on every backend."""
    finds_master = any(
        assign.name == "MASTER_ADDR" and _FROM_SLURM.search(assign.value.text)
        for item in script.items
        for assign in _assigns(item)
    )
    for item in script.items:
        dropped = [assign for assign in _assigns(item) if _drops(assign, finds_master or has_nodes)]
        simple = item.simple
        if dropped and simple is not None and len(dropped) == len(simple.assigns) and len(simple.words) <= 1:
            yield removal(script.text, item.start, item.stop)
        else:
            yield from (Edit(assign.start, assign.end, "") for assign in dropped)
        for assign in _assigns(item):
            if has_nodes and _MAIN.search(assign.name) and _OWN_HOST.fullmatch(assign.value.text):
                yield Edit(assign.value.start, assign.value.end, '"$MASTER_ADDR"')


def _drops(assign: Assign, drops_port: bool) -> bool:
    is_from_slurm = _FROM_SLURM.search(assign.value.text) is not None
    if assign.name == "MASTER_PORT":
        return is_from_slurm or drops_port
    return assign.name == "MASTER_ADDR" and is_from_slurm


def _assigns(item: Item) -> Iterator[Assign]:
    simple = item.simple
    if (
        simple is None
        or item.background
        or (simple.words and simple.words[0].text not in ("export", "declare"))
    ):
        return
    yield from simple.assigns


def _host_lists(script: Script) -> Iterator[Edit]:
    """Yield what replaces arrays of hosts of which only the first one is used."""
    for item in script.items:
        for assign in _assigns(item):
            if assign.items is None or not _HOST_LIST.fullmatch(assign.value.text):
                continue
            rest = script.text[: assign.start] + script.text[assign.end :]
            uses = len(re.findall(rf"\$\{{?[!#]?{assign.name}\b|\b{assign.name}\[", rest))
            first = len(re.findall(rf"\$\{{{assign.name}(?:\[0\])?\}}|\${assign.name}\b(?!\[)", rest))
            if uses == first:
                yield Edit(assign.value.start, assign.value.end, '("$MASTER_ADDR")')


def is_unresolved(text: str) -> bool:
    """Whether a command still needs Slurm to find the hosts."""
    return names.mentions(text, "SLURM_JOB_NODELIST") or names.mentions(text, "SLURM_NODELIST")
