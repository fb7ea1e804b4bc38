"""Which run an attempt's token became, read from the paths of what the runs execute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from airflows import ids
from airflows.backends.databricks import payload, states
from airflows.backends.databricks.states import Run
from airflows.ids import Token
from airflows.trial import Handle

# Clocks may differ by so much.
_MARGIN_S = 900.0


def token_in(run: Run) -> str:
    """Return the token of the attempt that a run is, empty when it is none of ours."""
    for text in (PurePosixPath(states.command_path(run)).stem, (states.ai_task(run) or {}).get("mlflow_run")):
        try:
            ids.parse_token(str(text))
        except ValueError:
            continue
        return str(text)
    return ""


@dataclass(slots=True)
class Finder:
    """Finds runs by token.

    Attributes:
        root: directory with the launch directories.
        pages: yields runs of the workspace, newest first.
        creator: returns whose runs are ours.
    """

    root: Path
    pages: Callable[..., Iterator[Sequence[Run]]]
    creator: Callable[[], str]

    def find(self, tokens: Sequence[Token]) -> dict[Token, Handle]:
        """Return the handles of the tokens that became runs.

        Raises:
            BackendUnavailableError: the workspace did not answer.
        """
        found: dict[Token, Handle] = {}
        wanted = {token: payload.hex_of(token) for token in tokens}
        oldest = min((self._written_at(token) for token in tokens), default=0.0) - _MARGIN_S
        me = self.creator() if tokens else ""
        for page in self.pages(active_only=False) if tokens else ():
            for run in page:
                token = _which(run, wanted)
                if token is not None and run.get("creator_user_name") in {me, None}:
                    # The oldest of several: all others would be somebody's copies.
                    found[token] = Handle(str(run.get("run_id")))
            if len(found) == len(wanted) or _is_older(page, oldest):
                break
        return found

    def _written_at(self, token: Token) -> float:
        """Return when an attempt's launch directory was written: no run of it is older; 0 when unknown."""
        number, attempt = ids.parse_token(token)
        hex6 = token.rsplit("-", 3)[1]
        for path in self.root.glob(f"runs/*-{hex6}/{number}/a{attempt}/command.sh"):
            return path.stat().st_mtime
        return 0.0


def _which(run: Run, wanted: dict[Token, str]) -> Token | None:
    script = PurePosixPath(states.command_path(run))
    if script.stem in wanted:
        return Token(script.stem)
    ending = script.parent.name.rpartition("_")[2]
    return next((token for token, hex16 in wanted.items() if hex16 == ending), None)


def _is_older(page: Sequence[Run], oldest: float) -> bool:
    started = [int(run.get("start_time") or 0) / 1000 for run in page]
    return bool(started) and oldest > 0 and 0 < max(started) < oldest
