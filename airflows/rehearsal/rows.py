"""A row of the go/no-go table. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """What a row says. Only `FAIL` is a no-go."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at.

    Attributes:
        check: what, in a word or two.
        mark: what it says.
        words: what was seen.
        branch: of which branch, empty where there is only one, or where it concerns all.
        key: the swept key that it is about, empty for none.
    """

    check: str
    mark: Mark
    words: str
    branch: str = ""
    key: str = ""
