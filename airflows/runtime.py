"""For training code: who am I, where do I save, where do I go on from, should I stop?

Standard library only. Everything also works outside a trial, so the same script runs by hand.

Example:
    >>> import airflows.runtime as trial  # doctest: +SKIP
    >>> for epoch in range(start, 10):  # doctest: +SKIP
    ...     train(epoch)
    ...     with trial.saving(f"checkpoint-{epoch}.pt") as path:
    ...         torch.save(state, path)
    ...     if trial.should_stop():
    ...         sys.exit(trial.STOPPED)
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

STOPPED = 128 + signal.SIGTERM
"""Exit status of a program that ended because it was asked to."""

_asked = threading.Event()
_installed = threading.Lock()


def is_trial() -> bool:
    """Whether airflows started this process."""
    return "AIRFLOWS_SWEEP" in os.environ


def trial_id() -> str:
    """Return the trial's id, such as `digits-lr-7f3a9c/12`; empty outside a trial."""
    if not is_trial():
        return ""
    return f"{os.environ['AIRFLOWS_SWEEP']}/{os.environ['AIRFLOWS_TRIAL']}"


def attempt() -> int:
    """Return which attempt of the trial this is, counted from 0."""
    return int(os.environ.get("AIRFLOWS_ATTEMPT") or 0)


def checkpoint_dir() -> Path | None:
    """Return the directory that all attempts of the trial share; None outside a trial."""
    path = os.environ.get("AIRFLOWS_CHECKPOINT_DIR")
    return Path(path) if path else None


def resume_from() -> Path | None:
    """Return the newest complete checkpoint when the attempt started; None to start afresh."""
    path = os.environ.get("AIRFLOWS_RESUME_FROM")
    return Path(path) if path else None


def hyperparameters() -> dict[str, Any]:
    """Return the `parameters` of the train.yaml with the trial's overrides; empty when there are none.

    Raises:
        RuntimeError: PyYAML is not installed where the job runs.
    """
    path = os.environ.get("HYPERPARAMETERS_PATH")
    if not path:
        return {}
    try:
        import yaml  # noqa: PLC0415  (the only thing here that is not in the standard library)
    except ImportError as exc:
        message = "reading the hyperparameters needs PyYAML in the job's environment: pip install pyyaml"
        raise RuntimeError(message) from exc
    loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return dict(loaded or {})


def install_handler() -> None:
    """Remember SIGTERM instead of dying of it, so that `should_stop` can tell. Main thread only.

    A handler that was there before is called as well. Calling this twice does no harm.

    Raises:
        ValueError: this is not the main thread.
    """
    if not _installed.acquire(blocking=False):
        return
    try:
        before = signal.getsignal(signal.SIGTERM)

        def remember(number: int, frame: FrameType | None) -> None:
            _asked.set()
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, remember)
    except ValueError:
        _installed.release()
        raise


def should_stop() -> bool:
    """Whether the trial was asked to end (cancelled, out of time, preempted): save now, then exit `STOPPED`.

    The first call installs the handler, so call it once before training starts; a SIGTERM before that
    ends the process. After the signal there is the grace time of the backend, 30 s by default locally.
    """
    if threading.current_thread() is threading.main_thread():
        install_handler()
    return _asked.is_set()


@contextlib.contextmanager
def saving(name: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path to write to; when the block ends well, what is there gets its name in one step.

    The name is that of a file or of a directory that the block makes. A reader sees all of it or nothing,
    so a half-written checkpoint is never resumed from. On one rank only.

    Args:
        name: an absolute path, or one relative to the checkpoint directory (outside a trial: to the
            current directory).
    """
    target = (checkpoint_dir() or Path()) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield aside
        _flush(aside)
        _replace(aside, target)
    except BaseException:
        _remove(aside)
        raise


def _flush(path: Path) -> None:
    """Bring the content to the disk before the name, or a power cut leaves the name alone."""
    for file in [item for item in path.rglob("*") if item.is_file()] if path.is_dir() else [path]:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _replace(aside: Path, target: Path) -> None:
    if not target.is_dir():
        aside.replace(target)
        return
    # A directory cannot be replaced in one step: the old one steps aside under a name nobody reads.
    old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    target.rename(old)
    aside.rename(target)
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
