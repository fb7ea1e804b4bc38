"""Where airflows keeps what it knows on this machine. Light: imported by `--dry-run`."""

from __future__ import annotations

import os
from pathlib import Path


def home_directory() -> Path:
    """Return `$AIRFLOWS_HOME`, default `~/.airflows`."""
    return Path(os.environ.get("AIRFLOWS_HOME") or Path.home() / ".airflows").expanduser().absolute()
