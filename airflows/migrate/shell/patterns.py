"""Shell patterns, as in `case` and `${NAME%pattern}`, as regular expressions. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_EXTENDED = re.compile(r"[?*+@!]\(")


def regex(pieces: Sequence[tuple[str, bool]], *, lazy: bool = False) -> re.Pattern[str] | None:
    """Return the expression of a pattern, None for one that is not understood.

    Args:
        pieces: the parts of the pattern, each with whether it is quoted and so means itself.
        lazy: `*` takes as little as it can.
    """
    made = ""
    for text, is_quoted in pieces:
        if is_quoted:
            made += re.escape(text)
            continue
        if _EXTENDED.search(text):
            return None
        piece = _unquoted(text, "?" if lazy else "")
        if piece is None:
            return None
        made += piece
    return re.compile(made, re.DOTALL)


def _unquoted(text: str, greed: str) -> str | None:
    made, at = "", 0
    while at < len(text):
        char = text[at]
        if char == "*":
            made += f".*{greed}"
        elif char == "?":
            made += "."
        elif char == "[":
            close = text.find("]", at + 3 if text[at + 1 : at + 2] in ("!", "^") else at + 2)
            inside = text[at + 1 : close]
            if close < 0 or "[" in inside or "\\" in inside:
                return None
            made += f"[{'^' + inside[1:] if inside[0] in '!^' else inside}]"
            at = close
        else:
            made += re.escape(char)
        at += 1
    return made
