"""A place in the text of a shell script, and the small parts that can be read there. Pure."""

from __future__ import annotations

import re
from typing import NoReturn

from airflows.migrate.shell import scan
from airflows.migrate.shell.tree import Assign, Heredoc, ParseError, Redirect, Word

_RESERVED = re.compile(
    r"(?:if|then|elif|else|fi|for|while|until|do|done|case|esac|function|select|coproc|\{|\}|!|time|\[\[)"
    r"(?=[\s;&|()<>]|$)"
)
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\()|&>>|&>)")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[)?", re.ASCII)


class Cursor:
    """Reads blanks, words, redirects and assignments, and moves on.

    Attributes:
        text: the script.
        at: where it reads next.
        heredocs: the here-documents so far.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.heredocs: list[Heredoc] = []
        self._pending: list[Heredoc] = []

    def fail(self, message: str) -> NoReturn:
        """Raise a ParseError about this place."""
        raise ParseError(message, min(self.at, len(self.text)))

    def blanks(self) -> None:
        """Pass spaces and joined lines."""
        while True:
            char = self.text[self.at : self.at + 1]
            if char in (" ", "\t") and char:
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            else:
                return

    def blank_lines(self) -> None:
        """Pass blanks, comments and line ends."""
        while True:
            self.blanks()
            char = self.text[self.at : self.at + 1]
            if char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char == "\n":
                self.at += 1
                self._read_heredocs()
            else:
                return

    def _read_heredocs(self) -> None:
        for heredoc in self._pending:
            heredoc.start = self.at
            while True:
                if self.at >= len(self.text):
                    self.fail(f"the here-document is not closed by {heredoc.delimiter}")
                start = self.at
                end = self.text.find("\n", start)
                self.at = len(self.text) if end < 0 else end + 1
                line = self.text[start : self.at].rstrip("\n")
                if (line.lstrip("\t") if heredoc.indented else line) == heredoc.delimiter:
                    heredoc.end = start
                    heredoc.text = self.text[heredoc.start : start]
                    break
        self._pending.clear()

    def word_ahead(self) -> str:
        """Return the reserved word that stands here, empty for none."""
        found = _RESERVED.match(self.text, self.at)
        return found[0] if found else ""

    def expect(self, word: str) -> None:
        """Pass a reserved word that must stand here."""
        self.blank_lines()
        if self.word_ahead() != word:
            self.fail(f"{word} is missing")
        self.at += len(word)

    def redirects(self) -> tuple[Redirect, ...]:
        """Read all redirections that stand here."""
        found: list[Redirect] = []
        while True:
            self.blanks()
            redirect = self.redirect()
            if redirect is None:
                return tuple(found)
            found.append(redirect)

    def redirect(self) -> Redirect | None:
        """Read one redirection, if one stands here."""
        found = _REDIRECT.match(self.text, self.at)
        if found is None:
            return None
        start, op = self.at, found[1]
        self.at = found.end()
        self.blanks()
        target = self.word()
        if target is None:
            self.fail(f"what {op} leads to is missing")
        if op not in ("<<", "<<-"):
            return Redirect(start, self.at, op, target)
        quoted = any(char in target.text for char in "'\"\\")
        heredoc = Heredoc(re.sub(r"['\"\\]", "", target.text), quoted, op == "<<-")
        self.heredocs.append(heredoc)
        self._pending.append(heredoc)
        return Redirect(start, self.at, op, target, heredoc)

    def word(self) -> Word | None:
        """Read a word, if one begins here."""
        start = self.at
        self.at = scan.word_end(self.text, start)
        return Word(start, self.at, self.text[start : self.at]) if self.at > start else None

    def assign(self) -> Assign | None:
        """Read an assignment, if one stands here."""
        start = self.at
        found = _ASSIGN.match(self.text, start)
        if found is None:
            return None
        at, subscript = found.end(), None
        if found[2]:
            close = scan.bracket_end(self.text, at)
            if close is None:
                return None
            subscript, at = self.text[at:close], close + 1
        appends = self.text.startswith("+=", at)
        at += 2 if appends else 1
        if self.text[at - 1 : at] != "=":
            return None
        self.at = at
        if self.text.startswith("(", at) and subscript is None:
            items = self._array()
            value = Word(at, self.at, self.text[at : self.at])
            return Assign(start, self.at, found[1], None, appends, value, items)
        value = self.word() or Word(at, at, "")
        return Assign(start, self.at, found[1], subscript, appends, value)

    def _array(self) -> tuple[Word, ...]:
        self.at += 1
        items: list[Word] = []
        while True:
            self.blank_lines()
            if self.text.startswith(")", self.at):
                self.at += 1
                return tuple(items)
            word = self.word()
            if word is None:
                self.fail("the array is not closed")
            items.append(word)
