"""Progress in a Jupyter notebook: a display that changes while `airflows.run` drives.

IPython is only looked at where it is loaded already, as in a notebook's kernel; nothing needs it.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflows.engine.observers import Observer, Snapshot
from airflows.engine.onlooker import Onlooker
from airflows.errors import AirflowsError
from airflows.ledger import SweepRow, open_ledger
from airflows.report.live import Scene
from airflows.report.notebook import scene_html, scene_lines
from airflows.spec import SweepSpec

if TYPE_CHECKING:
    from airflows.engine.drive import Drive
    from airflows.engine.start import Begun
    from airflows.ledger import Change

    OnBegun = Callable[[Begun, Drive], None]

_EVERY_S = 1.0


def is_notebook() -> bool:
    """Whether this is a kernel, whose displays may change."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@dataclass(slots=True)
class NotebookProgress:
    """An observer that shows a sweep in the cell that drives it; a look that fails changes nothing.

    Attributes:
        show: takes an HTML and a plain picture, and whether it is the first.
        clock: seconds that only go forward.
    """

    show: Callable[[str, str, bool], None]
    clock: Callable[[], float] = time.monotonic
    _onlooker: Onlooker | None = None
    _sweep: tuple[SweepRow, SweepSpec, Path] | None = None
    _due: float = float("-inf")
    _is_first: bool = True

    def begun(self, begun: Begun, driving: Drive) -> None:
        """Learn which sweep it is."""
        site = driving.site
        self._sweep = (begun.row, site.spec, site.home)
        self._onlooker = Onlooker(site.ledger, *self._sweep, drives=True)

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Do nothing: the next look sees them."""

    def on_tick(self, snapshot: Snapshot) -> None:
        """Look again when that is due."""
        if self._onlooker is not None and self.clock() >= self._due:
            with suppress(AirflowsError):
                self._draw(self._onlooker.look(snapshot.note))
            self._due = self.clock() + _EVERY_S

    def close(self) -> None:
        """Show how it stands in the end; the driver's ledger is closed by then."""
        if self._onlooker is None or self._sweep is None:
            return
        self._onlooker.close()
        row, spec, home = self._sweep
        with (
            suppress(AirflowsError),
            closing(open_ledger(home, create=False)) as ledger,
            closing(Onlooker(ledger, row, spec, home)) as onlooker,
        ):
            self._draw(onlooker.look())

    def _draw(self, scene: Scene) -> None:
        text = "\n".join([f"{scene.live.sweep} {scene.live.state}", *scene_lines(scene)])
        self.show(scene_html(scene), text, self._is_first)
        self._is_first = False


@contextmanager
def watched(observer: Observer | None) -> Iterator[tuple[Observer | None, OnBegun]]:
    """Show progress where nobody else observes and this is a notebook.

    Yields:
        Who observes, and who is told of the sweep once it is in the ledger.
    """
    if observer is not None or not is_notebook():
        yield observer, _no_news
        return
    progress = NotebookProgress(_display())
    try:
        yield progress, progress.begun
    finally:
        progress.close()


def _display() -> Callable[[str, str, bool], None]:
    ipython: Any = import_module("IPython.display")
    name = f"airflows-{uuid.uuid4().hex}"

    def show(html: str, text: str, is_first: bool) -> None:
        bundle = {"text/html": html, "text/plain": text}
        ipython.display(bundle, raw=True, display_id=name, update=not is_first)

    return show


def _no_news(_begun: Begun, _drive: Drive) -> None:
    """Take no notice."""
