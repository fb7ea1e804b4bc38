"""The options of sbatch: long names, letters, which take a value, and how abbreviations resolve. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Takes = Literal["value", "nothing", "maybe"]

_LETTERS: Mapping[str, str] = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint",
    "c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus",
    "H": "hold", "h": "help", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses",
    "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output",
    "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe", "t": "time",
    "V": "version", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_VALUED = """
    account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint
    container container-id core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
    delay-boot dependency distribution error exclude export export-file extra extra-node-info gid
    gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input
    job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
    mem-per-gpu mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu
    ntasks-per-node ntasks-per-socket open-mode output partition power prefer priority profile qos
    reservation segment signal sockets-per-node switches tasks-per-node thread-spec threads-per-core
    time time-min tmp tres-bind tres-per-task uid umask wait-all-nodes wckey wrap
""".split()  # noqa: SIM905
_PLAIN = """
    contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot
    spread-job stepmgr test-only usage use-min-nodes verbose version wait
""".split()  # noqa: SIM905
_OPTIONAL = """
    exclusive get-user-env nice no-kill oom-kill-step propagate requeue resv-ports
""".split()  # noqa: SIM905
_TAKES: Mapping[str, Takes] = {
    **dict.fromkeys(_VALUED, "value"),
    **dict.fromkeys(_PLAIN, "nothing"),
    **dict.fromkeys(_OPTIONAL, "maybe"),
}
# Options that sbatch knows only where the pyxis plugin is installed.
_PYXIS: Mapping[str, Takes] = {
    "container-image": "value", "container-mounts": "value", "container-workdir": "value",
    "container-name": "value", "container-save": "value", "container-env": "value",
    "container-mount-home": "nothing", "no-container-mount-home": "nothing",
    "container-remap-root": "nothing", "no-container-remap-root": "nothing",
    "container-entrypoint": "nothing", "no-container-entrypoint": "nothing",
    "container-writable": "nothing", "container-readonly": "nothing",
}  # fmt: skip
_SAME: Mapping[str, str] = {"tasks-per-node": "ntasks-per-node"}
PYXIS = frozenset(_PYXIS)


def by_letter(letter: str) -> str | None:
    """Return the long name of a short option, None for one that sbatch does not have."""
    return _LETTERS.get(letter)


def by_beginning(text: str) -> str | None:
    """Return the long name that a text is, or is the only beginning of; None for none or several."""
    if text in _TAKES or text in _PYXIS:
        return _SAME.get(text, text)
    found = {_SAME.get(name, name) for name in _TAKES if text and name.startswith(text)}
    return found.pop() if len(found) == 1 else None


def takes(name: str) -> Takes:
    """Return whether an option takes a value."""
    return _TAKES.get(name) or _PYXIS[name]
