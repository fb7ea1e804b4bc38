"""Logs of runs: from the log service, else from the chunks that the service leaves in MLflow."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflows.backends.databricks import states
from airflows.backends.databricks.chunks import Chunks
from airflows.backends.databricks.client import Workspace, WorkspaceError
from airflows.backends.databricks.script import RESUMING
from airflows.backends.databricks.states import Run
from airflows.errors import BackendUnavailableError

_NANO = 1_000_000_000
_LOOK_EVERY_S = 1.0
# Records may come this late.
_LOOK_BACK_S = 30
_EMPTY_LOOKS = 3
_MOST_REMEMBERED = 100_000
_FAILURES = 5
_WAIT_AFTER_FAILURE_S = 3.0
_MOST_IN_PAGE = 1000
_FIRST_RECORDS = 50


class NoLogServiceError(Exception):
    """The log service has nothing to say about a run: MLflow is asked."""


@dataclass(slots=True)
class LogReader:
    """Reads the log of one node of one run; once.

    Attributes:
        workspace: which is asked.
        look: returns the run as it stands; None when there is none.
        run_id: its number.
        node: whose log it is.
        pause: sleeps for seconds.
        attempt: of those that the service made; None for the newest.
    """

    workspace: Workspace
    look: Callable[[], Run | None]
    run_id: int
    node: int
    pause: Callable[[float], None]
    attempt: int | None = None
    _printed: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=_MOST_REMEMBERED))
    _known: set[tuple[int, str]] = field(default_factory=set)
    _newest: int = 0
    _floor: int = 0

    def lines(self, *, follow: bool, lines: int | None) -> Iterator[str]:
        """Yield the log's lines, the last ones only with `lines`; with `follow` until the run has ended.

        Raises:
            BackendUnavailableError: the workspace did not answer.
        """
        if lines == 0 and not follow:
            return
        run = self._run()
        try:
            yield from self._hidden(self._service(run, follow=follow, lines=lines))
        except NoLogServiceError:
            chunks = Chunks(self.workspace, self._run, self.node, self.pause, self.attempt)
            yield from self._hidden(chunks.lines(follow=follow, lines=lines))

    def resumed_from(self) -> str:
        """Return the checkpoint that the run's log says it started from, empty for none."""
        try:
            page, _ = self._page(
                {"ascending": True, "page_size": _FIRST_RECORDS, **self._span(self._run())}, ""
            )
        except (NoLogServiceError, BackendUnavailableError):
            return ""
        found = [record.body.removeprefix(RESUMING) for record in page if record.body.startswith(RESUMING)]
        return found[0] if found else ""

    @staticmethod
    def _hidden(lines: Iterator[str]) -> Iterator[str]:
        """Yield lines as a terminal leaves them, without the one that airflows itself had printed."""
        for line in lines:
            if not line.startswith(RESUMING):
                yield line.rpartition("\r")[2] or line.rstrip("\r")

    def _run(self) -> Run:
        run = self.look()
        if run is None:
            message = f"the workspace knows no run {self.run_id}."
            raise BackendUnavailableError(message)
        return run

    # The log service

    def _service(self, run: Run, *, follow: bool, lines: int | None) -> Iterator[str]:
        newest = max((states.attempt_number(task) for task in states.attempts_of(run)), default=0)
        is_past = states.is_over(run) or (self.attempt is not None and self.attempt < newest)
        if is_past or not follow:
            found = list(self._whole(run) if lines is None else self._tail(run, lines))
            if not found and is_past:
                raise NoLogServiceError
            yield from found
            return
        if lines is not None:
            # Of a log that has not begun, everything is still to come.
            last = list(self._tail(run, max(1, lines)))
            yield from last[len(last) - min(lines, len(last)) :]
        yield from self._followed(run)

    def _followed(self, run: Run) -> Iterator[str]:
        empty = 0
        while True:
            # The status was read before, so whatever was written until the end is then read.
            fresh = list(self._drain(run))
            yield from fresh
            if states.is_over(run):
                if not self._newest and empty + 1 >= _EMPTY_LOOKS:
                    raise NoLogServiceError
                empty = 0 if fresh else empty + 1
                if empty >= _EMPTY_LOOKS:
                    return
            self.pause(_LOOK_EVERY_S)
            if not states.is_over(run):
                run = self._again(run)

    def _again(self, run: Run) -> Run:
        try:
            return self._run()
        except BackendUnavailableError:
            return run

    def _drain(self, run: Run) -> Iterator[str]:
        """Yield the records that have not been told, oldest first."""
        query: dict[str, Any] = {"ascending": True, **self._span(run)}
        query.pop("to", None)
        if self._newest:
            query["from"] = max(0, self._newest // _NANO - _LOOK_BACK_S)
        token = ""
        while True:
            page, token = self._page(query, token)
            yield from (record.body for record in page if self._is_new(record))
            if not token:
                return

    def _whole(self, run: Run) -> Iterator[str]:
        query = {"ascending": True, **self._span(run)}
        records: list[Record] = []
        token = ""
        while True:
            page, token = self._page(query, token)
            records += [record for record in page if self._is_new(record)]
            if not token:
                break
        yield from (record.body for record in _in_order(records))

    def _tail(self, run: Run, target: int) -> Iterator[str]:
        if not target:
            return
        query = {"ascending": False, "page_size": min(target, _MOST_IN_PAGE), **self._span(run)}
        records: list[Record] = []
        token = ""
        while True:
            page, token = self._page(query, token)
            records += [record for record in page if self._is_new(record)]
            if not token or len(records) >= target:
                break
        # Descending pages; what has no time of its own stays where it stood.
        last = _in_order(records[::-1])[-target:]
        self._floor = last[0].nano if last else 0
        yield from (record.body for record in last)

    def _span(self, run: Run) -> dict[str, int]:
        start = int(run.get("start_time") or 0) // 1000
        end = math.ceil(int(run.get("end_time") or 0) / 1000) if states.is_over(run) else 0
        return ({"from": start} if start else {}) | ({"to": end} if end else {})

    def _page(self, query: Mapping[str, Any], token: str) -> tuple[list[Record], str]:
        """Return (records, next token) of one page; what fails is tried again.

        Raises:
            NoLogServiceError: the service is not there, or fails again and again.
            BackendUnavailableError: there is no such run.
        """
        asked = {"filter.node_index": self.node, **query}
        asked |= {} if self.attempt is None else {"ref.attempt_number": self.attempt}
        asked |= {"page_token": token} if token else {}
        path = f"/api/2.0/ai-training/workflows/by-run-id/{self.run_id}/logs"
        for failures in range(_FAILURES):
            if failures:
                self.pause(_WAIT_AFTER_FAILURE_S)
            try:
                answer = self.workspace.get(path, **asked)
            except WorkspaceError as exc:
                if exc.is_disabled or exc.is_missing or exc.code == "ENDPOINT_NOT_FOUND":
                    raise NoLogServiceError from None
            except BackendUnavailableError:
                continue
            else:
                following = str(answer.get("next_page_token") or "")
                records = [Record.of(each) for each in answer.get("log_records") or ()]
                return records, "" if following == token else following
        raise NoLogServiceError

    def _is_new(self, record: Record) -> bool:
        """Whether a record was not told yet; those without a time are always told."""
        self._newest = max(self._newest, record.nano)
        if not record.nano:
            return True
        if record.key in self._known or record.nano < self._floor:
            return False
        if len(self._printed) == _MOST_REMEMBERED:
            self._known.discard(self._printed[0])
        self._printed.append(record.key)
        self._known.add(record.key)
        return True


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a log.

    Attributes:
        nano: nanoseconds since the epoch, 0 for none.
        body: without its newline.
        id: given by some servers.
    """

    nano: int
    body: str
    id: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Record:
        """Read a record of the log service."""
        text = re.sub(r"\D", "", str(value.get("time_unix_nano") or ""))
        return cls(
            int(text or 0), str(value.get("body") or "").rstrip("\n"), str(value.get("record_id") or "")
        )

    @property
    def key(self) -> tuple[int, str]:
        """What two copies of the same record share."""
        return (self.nano, f"id {self.id}" if self.id else self.body)


def _in_order(records: list[Record]) -> list[Record]:
    """Return records by time; late ones stand where they belong."""
    return sorted(records, key=lambda record: record.nano) if all(r.nano for r in records) else records
