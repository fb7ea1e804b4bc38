"""Lines of PBS and LSF in a script, as far as sbatch understands them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_LETTERS: Mapping[str, str] = {
    "A": "account", "e": "error", "J": "array", "M": "mail-user", "N": "job-name", "o": "output",
    "q": "partition", "t": "array",
}  # fmt: skip
_LSF: Mapping[str, str] = {"J": "job-name", "n": "ntasks", "o": "output", "e": "error", "q": "partition"}
_RESOURCES: Mapping[str, str] = {
    "walltime": "time",
    "mem": "mem",
    "pmem": "mem-per-cpu",
    "ncpus": "cpus-per-task",
}
_OPTION = re.compile(r"-(\w)\s*(\"[^\"]*\"|'[^']*'|[^\s-]\S*)?")


def options_of(line: str) -> Iterator[tuple[str, str]]:
    """Yield (long name of sbatch, value) of a line of another scheduler; what sbatch ignores is left out."""
    names = _LSF if line.startswith("#BSUB") else _LETTERS
    rest = line.partition(" ")[2].partition("#")[0]
    for letter, value in _OPTION.findall(rest):
        text = value.strip("\"'")
        if letter in names and text:
            yield names[letter], text
        elif letter == "l" and names is _LETTERS:
            yield from _resources(text)
        elif letter == "W" and names is _LSF and text:
            hours, colon, minutes = text.partition(":")
            yield "time", f"{hours}:{minutes}:00" if colon else hours


def _resources(text: str) -> Iterator[tuple[str, str]]:
    """Yield options of `-l nodes=2:ppn=4:gpus=1,walltime=1:00:00`."""
    for part in text.split(","):
        for piece in part.split(":") if part.startswith(("nodes=", "select=")) else [part]:
            name, _, value = piece.partition("=")
            if name in {"nodes", "select"} and value.isdigit():
                yield "nodes", value
            elif name == "ppn":
                yield "ntasks-per-node", value
            elif name in {"gpus", "ngpus"}:
                yield "gpus-per-node", value
            elif name in _RESOURCES and value:
                yield _RESOURCES[name], value
