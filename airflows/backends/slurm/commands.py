"""Calling Slurm's commands: clean environment, patience, and no answer told apart from a bad one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflows.errors import BackendUnavailableError

_STEERING = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SPANK_")
_KEPT = ("SLURM_CONF",)
_UNANSWERED = (124, 137)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left.

    Attributes:
        code: exit status; 124 when it did not answer in time.
        out, err: what it printed.
    """

    code: int
    out: str
    err: str

    @property
    def is_unanswered(self) -> bool:
        """Whether it was ended for not answering."""
        return self.code in _UNANSWERED


@dataclass(frozen=True, slots=True)
class Commands:
    """Slurm's commands as one user calls them.

    Attributes:
        patience_s: how long one may take.
        environ: the driver's environment.
    """

    patience_s: float
    environ: Mapping[str, str]

    @staticmethod
    def missing(*names: str) -> list[str]:
        """Return the commands that are not installed."""
        return [name for name in names if shutil.which(name) is None]

    def ask(self, *words: str) -> Answer:
        """Run a command that changes nothing, or may be repeated.

        Raises:
            BackendUnavailableError: it is not installed or did not answer.
        """
        steered = {k: v for k, v in self.environ.items() if not k.startswith(_STEERING) or k in _KEPT}
        # Times without a zone would be anybody's; lists of indices are cut at 64 characters by default.
        settings = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
        answer = self._run(words, steered | settings)
        if answer.is_unanswered:
            message = f"Slurm did not answer {words[0]} within {self.patience_s:.0f} s."
            raise BackendUnavailableError(message)
        return answer

    def submit(self, words: Sequence[str], env: Mapping[str, str], *, stdin: str = "") -> Answer:
        """Run sbatch with the job's environment; SBATCH_* would override its directives.

        It is ended after the patience even when this process has died: whoever looks for the job then knows
        that none comes any more.

        Raises:
            BackendUnavailableError: it is not installed.
        """
        kept = {name: self.environ[name] for name in _KEPT if name in self.environ}
        return self._run(["sbatch", *words], {**env, **kept}, stdin=stdin)

    def _run(self, words: Sequence[str], env: Mapping[str, str], *, stdin: str = "") -> Answer:
        command = ["timeout", "--kill-after=2", f"{self.patience_s:.12g}", *words]
        if self.missing(words[0]):
            message = f"{words[0]} is not installed here, or not on PATH."
            raise BackendUnavailableError(message, hint="Run airflows where Slurm's commands are.")
        try:
            done = subprocess.run(
                command, env=env, input=stdin.encode(), capture_output=True, check=False, cwd=os.sep
            )
        except OSError as exc:
            message = f"{words[0]} cannot be run: {exc.strerror}."
            raise BackendUnavailableError(message) from exc
        out, err = (part.decode("utf-8", "replace") for part in (done.stdout, done.stderr))
        return Answer(done.returncode, out, err)
