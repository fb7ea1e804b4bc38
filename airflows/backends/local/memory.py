"""How much memory the processes of an attempt use on this machine and its GPUs, while it runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from airflows.backends.local.processes import marked
from airflows.backends.measuring import MemoryUse

_HELD = re.compile(r"^(VmHWM|VmRSS):\s+(\d+) kB$", re.MULTILINE)
_PATIENCE_S = 5.0


def memory_of(launch_dir: str) -> MemoryUse:
    """Return what the living processes of an attempt use: all of them now, or one of them at its most.

    What several processes share is counted for each.
    """
    pids = marked(launch_dir)
    now, most = 0, 0
    for pid in pids:
        held = _held(pid)
        now += held.get("VmRSS", 0)
        most = max(most, held.get("VmHWM", 0))
    return MemoryUse(max(now, most) or None, _on_gpus(pids))


def _held(pid: int) -> dict[str, int]:
    try:
        text = Path("/proc", str(pid), "status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return {}
    return {name: int(kib) * 1024 for name, kib in _HELD.findall(text)}


def _on_gpus(pids: Collection[int]) -> int | None:
    """Return the GPU memory of processes, as nvidia-smi tells it; None where it does not."""
    program = shutil.which("nvidia-smi")
    if program is None or not pids:
        return None
    asked = [program, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return used_by(pids, done.stdout)


def used_by(pids: Collection[int], answer: str) -> int | None:
    r"""Return the bytes that processes have in nvidia-smi's answer (`PID, MiB` a line); None for none.

    Example:
        >>> used_by({7, 8}, "7, 512\n8, 256\n9, 1024\n") // 2**20
        768
    """
    rows = [line.split(",") for line in answer.splitlines() if line.count(",") == 1]
    # It says [N/A] where a container or the driver hides it.
    found = [
        int(mib) for pid, mib in rows if pid.strip().isdigit() and int(pid) in pids and mib.strip().isdigit()
    ]
    return sum(found) * 2**20 if found else None
