"""The script of one trial: what differs between the trials of a sweep, then the command. Pure.

All trials of a sweep share a launch directory with AI Runtime's files; each has its own script there, so that
a trial costs one upload.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from airflows import checkpoints

RESUMING = "airflows: resuming from "
"""Begins the line of the log that tells which checkpoint an attempt starts from."""

SCRATCH = "/tmp/airflows-checkpoints"  # noqa: S108 - on the node, where nobody else is
"""Where checkpoints go when no volume is named: no later attempt finds anything there."""

_HEAD = """\
# Written by airflows: what this trial has of its own; its command follows.
set -euo pipefail
"""
_MAKE = """\
mkdir -p "$AIRFLOWS_CHECKPOINT_DIR" 2>/dev/null || :
"""
_RESUME = """\
if [ -n "$(ls -A "$AIRFLOWS_CHECKPOINT_DIR" 2>/dev/null)" ]; then
af_python=$(command -v python3 || command -v python) || :
AIRFLOWS_RESUME_FROM=$("$af_python" - "$AIRFLOWS_CHECKPOINT_DIR" {pattern} <<'{mark}'
{program}
{mark}
) || AIRFLOWS_RESUME_FROM=
if [ -n "$AIRFLOWS_RESUME_FROM" ]; then echo "{resuming}$AIRFLOWS_RESUME_FROM"; fi
fi
"""
_PARAMETERS = """\
HYPERPARAMETERS_PATH=$(mktemp -d)/hyperparameters.yaml
export HYPERPARAMETERS_PATH
cat >"$HYPERPARAMETERS_PATH" <<'{mark}'
{text}{mark}
"""

_PARAMETERS_IN = re.compile(
    r"""^cat >"\$HYPERPARAMETERS_PATH" <<'(?P<mark>END_[0-9a-f]{16})'\n(?P<text>.*?)^(?P=mark)$""",
    re.MULTILINE | re.DOTALL,
)


def trial_script(
    command: str, variables: Mapping[str, str], *, parameters: str = "", pattern: str = ""
) -> str:
    """Return the text of a trial's script.

    Args:
        command: of the train.yaml.
        variables: exported before it runs, `AIRFLOWS_CHECKPOINT_DIR` among them if there is one.
        parameters: hyperparameters.yaml, empty for none.
        pattern: glob of what counts as a checkpoint, empty for the known forms.
    """
    parts = [_HEAD]
    parts += [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    parts.append("export AIRFLOWS_RESUME_FROM=\n")
    directory = variables.get("AIRFLOWS_CHECKPOINT_DIR", "")
    if directory:
        parts.append(_MAKE)
    if directory and not directory.startswith(SCRATCH):
        program = _checkpoints().rstrip("\n")
        parts.append(
            _RESUME.format(
                program=program, mark=_mark(program), pattern=shlex.quote(pattern), resuming=RESUMING
            )
        )
    if parameters:
        text = parameters if parameters.endswith("\n") else f"{parameters}\n"
        parts.append(_PARAMETERS.format(text=text, mark=_mark(text)))
    parts.append(f"\n{command}")
    return "".join(parts)


def parameters_in(script: str) -> str:
    """Return the hyperparameters.yaml that a trial's script writes, empty for none."""
    found = _PARAMETERS_IN.search(script)
    return "" if found is None else found["text"]


def _mark(text: str) -> str:
    """Return a line that ends a here-document and does not stand in it."""
    return f"END_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


@cache
def _checkpoints() -> str:
    return Path(checkpoints.__file__).read_text(encoding="utf-8")
