"""The exit codes that are airflows' own: the preamble in the job ends with them, never the command. Pure."""

from __future__ import annotations

from enum import IntEnum


class OwnExit(IntEnum):
    """Why the preamble ended an attempt without running the command to its end.

    A command may end with the same numbers: only the word in the exit file says that one is ours. That of
    TIMED_OUT, after which the command has its own, is used where no exit file could be written.
    """

    INVALID = 64
    CODE_DAMAGED = 65
    NO_RENDEZVOUS = 75
    DUPLICATE = 76
    TIMED_OUT = 77

    @property
    def word(self) -> str:
        """The word for it in exit files and observations, such as `code_damaged`."""
        return self.name.lower()
