"""Looking at runs: active ones by the page, ended ones by themselves, seldom where nothing changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflows.backends.base import Observation, Phase
from airflows.backends.databricks import states
from airflows.backends.databricks.client import Workspace, WorkspaceError, as_unavailable
from airflows.backends.databricks.states import MlflowIds, Run
from airflows.errors import BackendUnavailableError
from airflows.trial import Handle

_SHORTEST_S = 1.0
_LONGEST_S = 60.0
_SHARE = 0.1
_PAGE = 25
_MOST_LISTED = 2000
_FEW = 3
_MOST_KEPT = 20_000
_LOST_AFTER_S = 120.0
# An attempt's MLflow run may be told a moment late.
_MOST_TRIES = 3
# Runs that wait do so for the same few reasons.
_MOST_ASKED_WHY = 8


def interval_s(since_change_s: float) -> float:
    """Return how long after a look the next one is due: seldom where nothing has changed for long."""
    return min(_LONGEST_S, max(_SHORTEST_S, _SHARE * since_change_s))


@dataclass(slots=True)
class Watcher:
    """Looks at runs. All it keeps is what it saw last; a new one asks again.

    Attributes:
        workspace: which is asked.
        clock: seconds since the epoch.
        resumed_from: returns the checkpoint that an ended run started from.
    """

    workspace: Workspace
    clock: Callable[[], float]
    resumed_from: Callable[[Run], str]
    _last: dict[Handle, Observation] = field(default_factory=dict)
    _ids: dict[int, MlflowIds] = field(default_factory=dict)
    _tries: Counter[int] = field(default_factory=Counter)
    _asked_why: Counter[int] = field(default_factory=Counter)
    _missing_since: dict[Handle, float] = field(default_factory=dict)
    _looked_at: float = float("-inf")
    _changed_at: float = float("-inf")

    def hurry(self) -> None:
        """Look again at once and often: something is about to change."""
        self._changed_at = self.clock()
        self._looked_at = float("-inf")

    def poll(self, handles: Sequence[Handle]) -> dict[Handle, Observation]:
        """Observe runs; between two looks the last one is told again.

        Raises:
            BackendUnavailableError: the workspace did not answer.
        """
        now = self.clock()
        is_due = not 0 <= now - self._looked_at < interval_s(now - self._changed_at)
        if not is_due and all(handle in self._last for handle in handles):
            return {handle: self._last[handle] for handle in handles}
        over = {h: last for h in handles if (last := self._last.get(h)) and last.phase is Phase.ENDED}
        open_ones = [handle for handle in handles if handle not in over]
        if not open_ones:
            return over
        runs, missing = self._runs(open_ones)
        self._note_missing(missing, runs, now)
        self._looked_at = now
        self._learn_ids(list(runs.values()))
        seen = {handle: self._observation(run) for handle, run in runs.items() if self._is_known(run)}
        seen |= self._gone(missing, now)
        self._remember(seen, now)
        return over | seen

    def _is_known(self, run: Run) -> bool:
        """Whether enough is known of a run: without its MLflow run, an ended one could never be ranked."""
        if not states.is_over(run) or not _has_mlflow(run):
            return True
        task = states.task_id(run)
        ids = self._ids.get(task)
        return ids is not None and (bool(ids.run) or self._tries[task] >= _MOST_TRIES)

    def _observation(self, run: Run) -> Observation:
        seen = states.observation_of(run, self._ids.get(states.task_id(run), MlflowIds()))
        if seen.phase is Phase.ENDED:
            return replace(seen, resumed_from=self.resumed_from(run))
        return seen

    def _remember(self, seen: Mapping[Handle, Observation], now: float) -> None:
        for handle, observation in seen.items():
            before = self._last.get(handle)
            if before is None or before.phase is not observation.phase:
                self._changed_at = now
        if len(self._last) > _MOST_KEPT:
            self._last.clear()
            self._ids.clear()
            self._tries.clear()
            self._asked_why.clear()
        self._last.update(seen)

    def _note_missing(self, missing: Sequence[Handle], found: Iterable[Handle], now: float) -> None:
        for handle in found:
            self._missing_since.pop(handle, None)
        for handle in missing:
            self._missing_since.setdefault(handle, now)

    def _gone(self, handles: Sequence[Handle], now: float) -> dict[Handle, Observation]:
        """Observe runs that the workspace no longer knows: lost, once that has been so for a while."""
        lost = {}
        for handle in handles:
            if now - self._missing_since[handle] >= _LOST_AFTER_S:
                detail = "the workspace no longer knows the run"
                lost[handle] = Observation(Phase.ENDED, word="LOST", detail=detail, ended_at=now)
        return lost

    # Asking

    def _runs(self, handles: Sequence[Handle]) -> tuple[dict[Handle, Run], list[Handle]]:
        """Return (those found, those that the workspace says it does not know)."""
        found: dict[Handle, Run] = {}
        if len(handles) >= _FEW:
            wanted = set(handles)
            # Where others' runs fill the pages, asking for each run is cheaper.
            for page in self._active_pages(most=max(1, len(handles) // 2)):
                found |= {h: run for run in page if (h := Handle(str(run.get("run_id")))) in wanted}
                if len(found) == len(wanted):
                    return found, []
        answers = self._each([handle for handle in handles if handle not in found])
        found |= {handle: run for handle, run in answers.items() if run is not None}
        return found, [handle for handle, run in answers.items() if run is None]

    def _active_pages(self, most: int) -> Iterator[Sequence[Run]]:
        for number, page in enumerate(self.pages(active_only=True)):
            yield page
            if number + 1 >= most:
                return

    def pages(self, *, active_only: bool) -> Iterator[Sequence[Run]]:
        """Yield the runs of the workspace that were submitted as ours are, newest first, 2000 at most.

        Raises:
            BackendUnavailableError: the workspace did not answer.
        """
        query = {"run_type": "SUBMIT_RUN", "expand_tasks": True, "limit": _PAGE}
        query |= {"active_only": True} if active_only else {}
        token, seen = "", set()
        for _ in range(_MOST_LISTED // _PAGE):
            more = {"page_token": token} if token else {}
            try:
                answer = self.workspace.get("/api/2.2/jobs/runs/list", **query, **more)
            except WorkspaceError as exc:
                raise as_unavailable(exc) from None
            yield answer.get("runs") or ()
            token = str(answer.get("next_page_token") or "")
            if not token or token in seen:
                return
            seen.add(token)

    def _each(self, handles: Sequence[Handle]) -> dict[Handle, Run | None]:
        """Ask for runs one by one, a few at once; without those whose request failed."""
        answers = dict(zip(handles, self.workspace.each(self._try, handles), strict=True))
        failed = [answer for answer in answers.values() if isinstance(answer, Exception)]
        if failed and len(failed) == len(answers):
            raise failed[0]
        return {h: answer for h, answer in answers.items() if not isinstance(answer, Exception)}

    def _try(self, handle: Handle) -> Run | BackendUnavailableError | None:
        try:
            return self.run(handle)
        except BackendUnavailableError as exc:
            return exc

    def run(self, handle: Handle) -> Run | None:
        """Return a run as the workspace has it, its attempts on all pages; None when it knows none.

        Raises:
            BackendUnavailableError: the workspace did not answer.
        """
        query = {"run_id": number_of(handle)}
        try:
            run = self.workspace.get("/api/2.2/jobs/runs/get", **query)
            page = run
            while token := page.get("next_page_token"):
                page = self.workspace.get("/api/2.2/jobs/runs/get", **query, page_token=token)
                run["tasks"] = [*(run.get("tasks") or ()), *(page.get("tasks") or ())]
                if not page.get("tasks"):
                    break
        except WorkspaceError as exc:
            if exc.is_missing:
                return None
            raise as_unavailable(exc) from None
        return run

    # MLflow

    def _learn_ids(self, runs: Sequence[Run]) -> None:
        """Ask for the MLflow runs of attempts that have started, once each; and why others wait."""
        unknown = [run for run in runs if not self._ids.get(states.task_id(run), MlflowIds()).run]
        self._ids |= self.waiting_ids(unknown)
        wanted: dict[int, bool] = {}
        for run in unknown:
            task, is_over = states.task_id(run), states.is_over(run)
            if _has_mlflow(run) and (self._tries[task] < _MOST_TRIES or not is_over):
                wanted[task] = is_over
        tasks = list(wanted)
        for task, ids in zip(tasks, self.workspace.each(self.mlflow_ids, tasks), strict=True):
            if ids is not None:
                self._ids[task] = ids
                self._tries[task] += wanted[task]
                if wanted[task] and not ids.run:
                    # An end waits for this to be told.
                    self._changed_at = self.clock()

    def waiting_ids(self, runs: Iterable[Run]) -> dict[int, MlflowIds]:
        """Return what the service says of a few attempts that wait: of those first that were asked least."""
        waiting = [run for run in runs if states.phase_of(run) is Phase.QUEUED and states.ai_task(run)]
        tasks = sorted((states.task_id(run) for run in waiting), key=lambda task: self._asked_why[task])
        chosen = tasks[:_MOST_ASKED_WHY]
        self._asked_why.update(chosen)
        answers = zip(chosen, self.workspace.each(self.mlflow_ids, chosen), strict=True)
        return {task: ids for task, ids in answers if ids is not None}

    def mlflow_ids(self, task_id: int) -> MlflowIds | None:
        """Return the MLflow run of an attempt, empty before it has one; None when the workspace is silent."""
        try:
            return MlflowIds.of(self.workspace.get("/api/2.2/jobs/runs/get-output", run_id=task_id))
        except WorkspaceError as exc:
            return MlflowIds() if exc.is_refusal else None
        except BackendUnavailableError:
            return None


def _has_mlflow(run: Run) -> bool:
    """Whether a run's newest attempt has started, so that it has an MLflow run."""
    tasks = states.attempts_of(run)
    has_started = bool(tasks) and bool(tasks[-1].get("start_time")) and states.ai_task(run) is not None
    return has_started and states.phase_of(run) is not Phase.QUEUED


def number_of(handle: Handle) -> int:
    """Return the run's number that a handle is.

    Raises:
        BackendUnavailableError: it is not one of ours.
    """
    if not handle.isdigit():
        message = f"{handle!r} is no run of Databricks: those are numbers."
        raise BackendUnavailableError(message)
    return int(handle)
