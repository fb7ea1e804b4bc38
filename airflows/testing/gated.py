"""A sweep of real processes that end when they are told to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflows.ledger import Ledger, open_ledger


class Gated:
    """A home, and a sweep of three trials that each wait for a line from a pipe, two at a time."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        os.mkfifo(home / "gate")
        # Open for both, so that neither side waits for the other to open it.
        self._gate = os.open(home / "gate", os.O_RDWR)
        self.ledger: Ledger = open_ledger(home)

    def tree(self, **fields: Any) -> dict[str, Any]:
        """Return the sweep file, with fields added or replaced."""
        command = f'echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>{self.home}/ran; read -r _ <{self.home}/gate'
        return {
            "name": "gated",
            "base": {
                "experiment_name": "gated",
                "command": command,
                "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
                "parameters": {"lr": 0.0},
            },
            "space": {"parameters.lr": [0.1, 0.2, 0.3]},
            "limits": {"concurrent": 2},
            "tracking": {"uri": "none"},
            "backend": {"type": "local", "grace": 1},
            **fields,
        }

    def open_gate(self) -> None:
        """Let all trials end that run now or later."""
        os.write(self._gate, b"\n" * 100)

    def ran(self) -> Sequence[str]:
        """Return the attempts that were started, each as often as it was."""
        path = self.home / "ran"
        return sorted(path.read_text(encoding="ascii").split()) if path.exists() else []

    def close(self) -> None:
        """Let go of the pipe and the ledger."""
        os.close(self._gate)
        self.ledger.close()
