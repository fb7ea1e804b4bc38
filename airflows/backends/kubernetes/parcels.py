"""Files that pods get: the preamble, and the code, packed or on the volume; each once for its content."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from airflows import checkpoints
from airflows.backends.kubernetes import paths
from airflows.backends.kubernetes.client import Api
from airflows.backends.kubernetes.manifest import Parcel, UnfitJobError, config_map
from airflows.backends.kubernetes.refusals import ApiError
from airflows.backends.kubernetes.settings import KubernetesSettings, Volume
from airflows.snapshot import kept_files

_PREAMBLE = Path(__file__).with_name("preamble.sh")
# A ConfigMap holds 1 MiB, in which base64 does not count.
_PART_BYTES = 900_000
_MOST_PARTS = 5
_TOO_LARGE = (
    f"the code is more than {_MOST_PARTS * _PART_BYTES / 1e6:,.1f} MB when packed, which is what goes into"
    " ConfigMaps: keep data out of it with .gitignore or include_paths, name a volume (backend.pvc with"
    " `local`), or put the code into the image (`code: image`)."
)


@cache
def tools() -> Mapping[str, bytes]:
    """Return the files that run an attempt in a pod."""
    return {
        "preamble.sh": _PREAMBLE.read_bytes(),
        "checkpoints.py": Path(checkpoints.__file__).read_bytes(),
    }


def tools_name() -> str:
    """Return the name of the ConfigMap with the tools as they are now."""
    return f"airflows-tools-{hashlib.sha256(bytes(0).join(tools().values())).hexdigest()[:16]}"


class TooLargeError(Exception):
    """An archive is larger than it may be."""


class _Limited(io.BytesIO):
    def write(self, data: Any, /) -> int:
        written = super().write(data)
        if self.tell() > _MOST_PARTS * _PART_BYTES:
            raise TooLargeError
        return written


def archive(directory: Path) -> bytes:
    """Return code as a gzip tar, its root's name in front of each path; the same code is the same bytes.

    Raises:
        TooLargeError: ConfigMaps do not hold it; packing stops there.
    """
    packed = _Limited()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name in kept_files(directory):
            tar.add(directory / name, f"{directory.name}/{name}", recursive=False, filter=_plain)
    return packed.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # Kept code is read-only here; where it is unpacked it is the attempt's own.
    member.mode |= 0o200
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


class Parcels:
    """Sends files into one namespace, each content once.

    Args:
        api: where to.
        settings: of the backend.
    """

    def __init__(self, api: Api, settings: KubernetesSettings) -> None:
        self._api = api
        self._settings = settings
        self._lock = threading.Lock()
        self._sent: dict[str, Parcel] = {}
        self._too_large: set[str] = set()
        self._placed: dict[Path, str] = {}

    def tools(self) -> str:
        """Return the name of the ConfigMap with the preamble, which is there.

        Raises:
            ApiError: the cluster refuses it.
            BackendUnavailableError: nothing is known.
        """
        with self._lock:
            name = tools_name()
            if name not in self._sent:
                self._make(name, tools())
                self._sent[name] = Parcel((name,))
            return name

    def code(self, code: Path | None, sweep: str) -> tuple[Parcel, str]:
        """Return (ConfigMaps with the code, where the code is in the pods already), either may be empty.

        Raises:
            UnfitJobError: it does not get there.
            ApiError: the cluster refuses it.
            BackendUnavailableError: nothing is known.
        """
        way = self._settings.code_way
        if code is None or way == "image":
            return Parcel(), self._settings.code_path or "" if way == "image" else ""
        with self._lock:
            if way == "pvc" and self._settings.pvc is not None:
                return Parcel(), self._on_volume(code, self._settings.pvc)
            key = str(code)
            if key in self._too_large:
                raise UnfitJobError(_TOO_LARGE)
            if key not in self._sent:
                try:
                    self._sent[key] = self._send(code, sweep)
                except UnfitJobError:
                    # Kept code does not change.
                    self._too_large.add(key)
                    raise
            return self._sent[key], ""

    def _send(self, code: Path, sweep: str) -> Parcel:
        try:
            packed = archive(code)
        except TooLargeError:
            raise UnfitJobError(_TOO_LARGE) from None
        parts = [packed[at : at + _PART_BYTES] for at in range(0, len(packed), _PART_BYTES)]
        digest = hashlib.sha256(packed).hexdigest()
        names = tuple(f"{sweep}-code-{digest[:12]}-{number}" for number in range(len(parts)))
        for name, part in zip(names, parts, strict=True):
            self._make(name, {"part": part}, sweep)
        return Parcel(names, digest, code.name)

    def _make(self, name: str, files: Mapping[str, bytes], sweep: str = "") -> None:
        try:
            body = config_map(name, self._api.namespace, files, sweep)
            self._api.post(paths.core(self._api.namespace, "configmaps"), body)
        except ApiError as exc:
            # Named after its content, and nobody can change it.
            if not exc.exists_already:
                raise

    def _on_volume(self, code: Path, volume: Volume) -> str:
        if code not in self._placed:
            if volume.local is None:
                message = "this machine does not see the volume: `pvc.local` says where."
                raise UnfitJobError(message)
            inside = Path("snapshots", code.parent.name, code.name)
            try:
                _place(code, volume.local / inside)
            except OSError as exc:
                message = f"the code cannot be written to {volume.local}: {exc.strerror or exc}."
                raise UnfitJobError(message) from exc
            self._placed[code] = str(Path(volume.mount) / inside)
        return self._placed[code]


def _place(code: Path, target: Path) -> None:
    """Copy code into a directory named after its content, complete or not at all."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        made = aside / code.name
        shutil.copytree(code, made, symlinks=True)
        for path in (aside, made):
            path.chmod(0o755)
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
