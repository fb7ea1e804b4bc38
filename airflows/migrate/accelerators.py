"""Which accelerator type of AI Runtime stands for the GPUs of a script. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflows.errors import SpecError
from airflows.migrate.resources import Resources
from airflows.train import ACCELERATORS

# GPUs whose memory and speed an A10 (24 GB) comes near to; all others are taken for larger ones.
_SMALL = re.compile(
    r"a10g?|a2|a16|a30|l4|t4|tesla_?t4|p4|p40|p100|k[248]0m?|v100(?:[-_].*)?|m[46]0"
    r"|(?:rtx|gtx|geforce|titan|quadro).*|[1-4]0[5-9]0(?:ti)?|[12]080(?:ti)?|titan.*"
)
_LARGE_RTX = re.compile(r".*(?:8000|a6000|6000_?ada|pro_?6000).*")
_IN_CONSTRAINT = re.compile(r"[a-z]{1,3}\d{1,4}[a-z]*(?:_\w+)?")
_ONE_SMALL, _ONE_LARGE, _EIGHT = "GPU_1xA10", "GPU_1xH100", "GPU_8xH100"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What a train.yaml asks for.

    Attributes:
        kind: the accelerator type.
        per_node: GPUs of one node of it.
        count: GPUs in all.
        note: what people should know about the choice; empty when it is what the script asks for.
    """

    kind: str
    per_node: int
    count: int
    note: str = ""


def choose(resources: Resources, constraint: str, wanted: str | None) -> Accelerator:
    """Return the accelerators for a script; the number of nodes stays as it is.

    Args:
        resources: what the script asks for.
        constraint: its `--constraint`, where a GPU's model often hides.
        wanted: the type to use, None for the nearest.

    Raises:
        SpecError: there is no type with so many GPUs a node, or the wanted one does not exist.
    """
    if wanted is not None and wanted not in ACCELERATORS:
        message = f"there is no accelerator type {wanted!r}."
        raise SpecError(message, field="--accelerator", hint=f"There are: {', '.join(ACCELERATORS)}.")
    each = resources.gpus_per_node or 0
    kind = wanted or _nearest(each, _model(resources, constraint))
    per_node = ACCELERATORS[kind]
    note = _note(resources, kind, per_node, is_chosen=wanted is not None)
    return Accelerator(kind, per_node, per_node * resources.nodes, note)


def _model(resources: Resources, constraint: str) -> str:
    if resources.gpu_type:
        return resources.gpu_type
    words = [word for word in re.split(r"[^a-z0-9_]+", constraint.lower()) if _IN_CONSTRAINT.fullmatch(word)]
    return words[0] if words else ""


def _nearest(gpus: int, model: str) -> str:
    if gpus > 1:
        return _EIGHT
    is_small = not model or (_SMALL.fullmatch(model) is not None and _LARGE_RTX.fullmatch(model) is None)
    return _ONE_SMALL if is_small else _ONE_LARGE


def _note(resources: Resources, kind: str, per_node: int, *, is_chosen: bool) -> str:
    gpus, model = resources.gpus_per_node, resources.gpu_type
    if gpus is None:
        return (
            f"The script asks for no GPU, and a train.yaml must name an accelerator: {kind} is the smallest"
            f" way to get {resources.nodes} node{'s' if resources.nodes > 1 else ''}. The settings for Slurm"
            " ask for none."
        )
    if gpus > per_node:
        return (
            f"The script asks for {gpus} GPUs a node and {kind} has {per_node}: look at what the command"
            " says of their number, or choose another type with --accelerator."
        )
    if gpus != per_node:
        return (
            f"The script asks for {gpus} GPU{'s' if gpus > 1 else ''} a node; {kind}, the nearest type, has"
            f" {per_node}. The settings for Slurm ask for {gpus}. Elsewhere look at what the command says of"
            " their number."
        )
    if is_chosen or (model and model in kind.lower()):
        return ""
    asked = f"a GPU of type {model}" if model else "a GPU of any type"
    return f"The script asks for {asked}; {kind} was taken. --accelerator chooses another."
