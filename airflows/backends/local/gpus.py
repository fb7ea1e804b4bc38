"""GPUs of this machine, handed out one trial at a time, across all drivers that share a root.

A GPU is held by a lock on its byte of one file. The lock belongs to an open descriptor that the preamble
inherits, so the kernel gives the GPU back when the run has gone, whoever was killed before that. Trials that
are packed hold that byte together, and each one of its places besides.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ASK_LONGEST_S = 10.0
# struct flock of 64-bit Linux: type, whence, start, length, pid (which must be 0 here).
_LOCK = struct.Struct("hhqqi4x")
_NUMBERED = 4096
# Behind the bytes of all GPUs, for each of them as many places as may ever be packed.
_PLACES_FROM = 1 << 34
_PLACES = 4096


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs taken for one run.

    Attributes:
        gpus: as CUDA_VISIBLE_DEVICES names them.
        descriptor: holds them as long as it is open in any process.
    """

    gpus: tuple[str, ...]
    descriptor: int


@dataclass(frozen=True, slots=True)
class GpuPool:
    """The GPUs that may be used.

    Attributes:
        gpus: as CUDA_VISIBLE_DEVICES names them.
        path: the file with the locks.
    """

    gpus: tuple[str, ...]
    path: Path

    def take(self, count: int, places: int = 1) -> Held | None:
        """Take GPUs that nobody holds; None when there are too few of those now.

        Args:
            count: so many.
            places: so many runs may hold each of them, if all of them say so.

        Raises:
            OSError: the file with the locks cannot be made.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        taken: list[str] = []
        for gpu in self.gpus:
            if len(taken) < count and _take(descriptor, gpu, places):
                taken.append(gpu)
        if len(taken) == count:
            return Held(tuple(taken), descriptor)
        os.close(descriptor)
        return None


def parted(count: int, pack: int) -> tuple[int, int]:
    """Return (GPUs of one run, runs on each of them) where so many runs share `count` GPUs.

    Each has GPUs of its own where they can be parted, or shares one; else all of them share all.

    Example:
        >>> parted(8, 4), parted(1, 8), parted(2, 8), parted(8, 3)
        ((2, 1), (1, 8), (1, 4), (8, 3))
    """
    if count % pack == 0:
        return count // pack, 1
    return (1, pack // count) if pack % count == 0 else (count, pack)


def _take(descriptor: int, gpu: str, places: int) -> bool:
    if places == 1:
        return _lock(descriptor, _byte(gpu))
    if not _lock(descriptor, _byte(gpu), fcntl.F_RDLCK):
        return False
    first = _PLACES_FROM + _byte(gpu) * _PLACES
    if any(_lock(descriptor, first + place) for place in range(places)):
        return True
    _lock(descriptor, _byte(gpu), fcntl.F_UNLCK)
    return False


def _lock(descriptor: int, byte: int, kind: int = fcntl.F_WRLCK) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _byte(gpu: str) -> int:
    return int(gpu) if gpu.isdigit() else _NUMBERED + zlib.crc32(gpu.encode())


def find_gpus(chosen: int | Sequence[str] | None, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the GPUs that may be used, as CUDA_VISIBLE_DEVICES names them.

    Args:
        chosen: the setting: which ones, how many of those there are, or None for all.
        environ: its CUDA_VISIBLE_DEVICES limits what there is.
    """
    if chosen is not None and not isinstance(chosen, int):
        return tuple(chosen)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        there = _visible(visible)
    elif chosen is not None:
        return tuple(map(str, range(chosen)))
    else:
        there = installed_gpus()
    return there if chosen is None else there[:chosen]


def _visible(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    # CUDA sees nothing from the first name on that it does not know.
    bad = next(
        (i for i, name in enumerate(names) if not re.fullmatch(r"\d+|(?:GPU|MIG)-.+", name)), len(names)
    )
    return tuple(names[:bad])


def installed_gpus() -> tuple[str, ...]:
    """Return the numbers of the machine's NVIDIA GPUs."""
    devices = sorted(Path("/dev").glob("nvidia[0-9]*"))
    if not devices and not Path("/dev/nvidiactl").exists() and not Path("/dev/dxg").exists():
        return ()
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_ASK_LONGEST_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return tuple(str(number) for number in range(len(devices)))
    return tuple(re.findall(r"^GPU (\d+):", listed, re.MULTILINE))


def lock_file(root: Path) -> Path:
    """Return the file with the locks of this machine's GPUs: a root may be shared by several machines."""
    return root / f"gpus-{socket.gethostname()}"
