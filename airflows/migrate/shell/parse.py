"""From the text of a shell script to its tree. Pure.

Covers what batch scripts use of POSIX sh and bash. What it does not know (coproc, extended globs, …) is a
ParseError: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from airflows.migrate.shell import scan
from airflows.migrate.shell.cursor import Cursor
from airflows.migrate.shell.tree import (
    Arith,
    Arm,
    Assign,
    Case,
    CFor,
    Command,
    Cond,
    For,
    Function,
    Group,
    If,
    Item,
    Pipeline,
    Redirect,
    Script,
    Simple,
    While,
    Word,
)

MAX_DEPTH = 60

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
DECLARERS = frozenset({"declare", "typeset", "local", "readonly", "export"})


def parse(text: str) -> Script:
    """Return the tree of a script.

    Raises:
        ParseError: the text cannot be understood; nothing is known of any part then.
    """
    parser = _Parser(text)
    try:
        items = parser.items(frozenset())
    except RecursionError:
        parser.fail("it is nested too deeply")
    if parser.at < len(text):
        parser.fail("something is closed that was not opened")
    return Script(text, tuple(items), parser.heredocs)


class _Parser(Cursor):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._compounds: dict[str, Callable[[], Command]] = {
            "if": self._if,
            "for": self._for,
            "while": self._while,
            "until": self._while,
            "case": self._case,
            "{": self._group,
            "[[": self._cond,
            "function": self._function,
        }

    # Lists

    def items(self, ends: frozenset[str]) -> list[Item]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail("it is nested too deeply")
        found: list[Item] = []
        while True:
            self.blank_lines()
            if self.at >= len(self.text) or self._is_end(ends):
                self._depth -= 1
                if self.at >= len(self.text) and self._pending:
                    self.fail("a here-document is missing")
                return found
            found.append(self._item())

    def _is_end(self, ends: frozenset[str]) -> bool:
        if self.text.startswith((";;", ";&"), self.at) or self.text[self.at] == ")":
            return True
        return self.word_ahead() in ends

    def _item(self) -> Item:
        start = self.at
        first = self._pipeline()
        rest: list[tuple[str, Pipeline]] = []
        end = first.end
        while True:
            self.blanks()
            op = self.text[self.at : self.at + 2]
            if op not in ("&&", "||"):
                break
            self.at += 2
            self.blank_lines()
            rest.append((op, self._pipeline()))
            end = rest[-1][1].end
        background = self._separator()
        return Item(start, end, first, tuple(rest), background=background, stop=self.at)

    def _separator(self) -> bool:
        """Pass what ends a list's item; return whether it is `&`."""
        char = self.text[self.at : self.at + 1]
        if char == "&":
            self.at += 1
            return True
        if char == ";" and self.text[self.at : self.at + 2] not in (";;", ";&"):
            self.at += 1
        elif char not in ("\n", "", ")", "#", ";"):
            self.fail(f"{char!r} is not expected here")
        return False

    def _pipeline(self) -> Pipeline:
        start = self.at
        negated = False
        while (word := self.word_ahead()) in ("!", "time"):
            negated = negated != (word == "!")
            self.at += len(word)
            self.blanks()
        commands = [self._command()]
        while True:
            self.blanks()
            if not self.text.startswith("|", self.at) or self.text.startswith("||", self.at):
                return Pipeline(start, commands[-1].end, negated, tuple(commands))
            self.at += 2 if self.text.startswith("|&", self.at) else 1
            self.blank_lines()
            commands.append(self._command())

    # Commands

    def _command(self) -> Command:
        if self.at >= len(self.text):
            self.fail("a command is missing")
        word = self.word_ahead()
        if word in self._compounds:
            return self._compounds[word]()
        if word:
            self.fail(f"{word} is not expected here")
        if self.text.startswith("((", self.at):
            found = scan.arithmetic_end(self.text, self.at + 2)
            if found is not None:
                return self._arith(found)
        return self._subshell() if self.text[self.at] == "(" else self._simple()

    def _simple(self) -> Command:
        start, end = self.at, self.at
        assigns: list[Assign] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.blanks()
            char = self.text[self.at : self.at + 1]
            redirect = self.redirect() if char else None
            if redirect is not None:
                redirects.append(redirect)
            elif char == "(" and len(words) == 1 and not assigns and not redirects:
                return self._function_of(words[0])
            elif char in ("", "\n", ";", "&", "|", ")", "#"):
                break
            else:
                self._read_word(assigns, words)
            end = self.at
        if not assigns and not words and not redirects:
            self.fail("a command is missing" if not char else f"{char!r} is not expected here")
        return Simple(start, end, tuple(assigns), tuple(words), tuple(redirects))

    def _read_word(self, assigns: list[Assign], words: list[Word]) -> None:
        declares = bool(words) and words[0].text in DECLARERS
        assign = self.assign() if not words or declares else None
        if assign is not None:
            assigns.append(assign)
            return
        word = self.word()
        if word is None:
            self.fail(f"{self.text[self.at]!r} is not expected here")
        words.append(word)

    # Compound commands

    def _function_of(self, name: Word) -> Function:
        self.at += 1
        self.blanks()
        if not self.text.startswith(")", self.at):
            self.fail("( is not expected here")
        self.at += 1
        return self._function_body(name)

    def _function(self) -> Function:
        start = self.at
        self.at += len("function")
        self.blanks()
        name = self.word()
        if name is None:
            self.fail("the function has no name")
        self.blanks()
        if self.text.startswith("(", self.at):
            found = self._function_of(name)
            return Function(start, found.end, found.name, found.body)
        return self._function_body(Word(start, name.end, name.text))

    def _function_body(self, name: Word) -> Function:
        self.blank_lines()
        body = self._command()
        return Function(name.start, body.end, name.text, body)

    def _arith(self, close: int) -> Arith:
        start, text = self.at, self.text[self.at + 2 : close]
        self.at = close + 2
        redirects, end = self._ending()
        return Arith(start, end, text, redirects)

    def _ending(self) -> tuple[tuple[Redirect, ...], int]:
        """Read what a compound command's input and output are; return it and where the command ends."""
        end = self.at
        redirects = self.redirects()
        return redirects, redirects[-1].end if redirects else end

    def _subshell(self) -> Group:
        start = self.at
        self.at += 1
        body = self.items(frozenset())
        if not body or not self.text.startswith(")", self.at):
            self.fail(") is missing")
        self.at += 1
        redirects, end = self._ending()
        return Group(start, end, True, tuple(body), redirects)

    def _group(self) -> Group:
        start = self.at
        self.at += 1
        body = self.items(frozenset("}"))
        self.expect("}")
        redirects, end = self._ending()
        return Group(start, end, False, tuple(body), redirects)

    def _cond(self) -> Cond:
        start = self.at
        self.at += 2
        words: list[Word] = []
        while True:
            self.blank_lines()
            if self._is_cond_end():
                self.at += 2
                redirects, end = self._ending()
                return Cond(start, end, tuple(words), redirects)
            word = self.word() or self._operator()
            words.append(word)

    def _is_cond_end(self) -> bool:
        return re.match(r"\]\](?=[\s;&|()<>]|$)", self.text[self.at :]) is not None

    def _operator(self) -> Word:
        start = self.at
        if start >= len(self.text):
            self.fail("]] is missing")
        pair = self.text[start : start + 2] in ("&&", "||")
        self.at += 2 if pair else 1
        return Word(start, self.at, self.text[start : self.at])

    def _if(self) -> If:
        start = self.at
        branches = []
        orelse: list[Item] = []
        self.at += 2
        while True:
            test = self.items(frozenset({"then"}))
            self.expect("then")
            body = self.items(frozenset({"elif", "else", "fi"}))
            branches.append((tuple(test), tuple(body)))
            word = self.word_ahead()
            self.at += len(word)
            if word == "else":
                orelse = self.items(frozenset({"fi"}))
                self.expect("fi")
            if word != "elif":
                break
        if word not in ("else", "fi"):
            self.fail("fi is missing")
        redirects, end = self._ending()
        return If(start, end, tuple(branches), tuple(orelse), redirects)

    def _while(self) -> While:
        start, word = self.at, self.word_ahead()
        self.at += len(word)
        test = self.items(frozenset({"do"}))
        body = self._do()
        redirects, end = self._ending()
        return While(start, end, word == "until", tuple(test), body, redirects)

    def _do(self) -> tuple[Item, ...]:
        self.expect("do")
        body = self.items(frozenset({"done"}))
        self.expect("done")
        return tuple(body)

    def _for(self) -> For | CFor:
        start = self.at
        self.at += 3
        self.blanks()
        if self.text.startswith("((", self.at):
            return self._c_for(start)
        found = _NAME.match(self.text, self.at)
        if found is None:
            self.fail("the variable of `for` is missing")
        self.at = found.end()
        self.blank_lines()
        words = self._for_words()
        self._pass_semicolon()
        body = self._do()
        redirects, end = self._ending()
        return For(start, end, found[0], words, body, redirects)

    def _for_words(self) -> tuple[Word, ...] | None:
        if re.match(r"in(?=[\s;]|$)", self.text[self.at : self.at + 3]) is None:
            return None
        self.at += 2
        words: list[Word] = []
        while True:
            self.blanks()
            word = self.word()
            if word is None:
                return tuple(words)
            words.append(word)

    def _pass_semicolon(self) -> None:
        self.blanks()
        if self.text.startswith(";", self.at):
            self.at += 1

    def _c_for(self, start: int) -> CFor:
        close = scan.arithmetic_end(self.text, self.at + 2)
        parts = [] if close is None else self.text[self.at + 2 : close].split(";")
        if close is None or len(parts) != 3:  # noqa: PLR2004 - first, test, step
            self.fail("the head of `for` is not understood")
        self.at = close + 2
        self._pass_semicolon()
        body = self._do()
        redirects, end = self._ending()
        return CFor(start, end, parts[0], parts[1], parts[2], body, redirects)

    def _case(self) -> Case:
        start = self.at
        self.at += 4
        self.blanks()
        word = self.word()
        self.blank_lines()
        if word is None or re.match(r"in(?=\s|$)", self.text[self.at : self.at + 3]) is None:
            self.fail("`in` is missing")
        self.at += 2
        arms: list[Arm] = []
        while True:
            self.blank_lines()
            if self.word_ahead() == "esac":
                self.at += 4
                redirects, end = self._ending()
                return Case(start, end, word, tuple(arms), redirects)
            arms.append(self._arm())

    def _arm(self) -> Arm:
        if self.text.startswith("(", self.at):
            self.at += 1
        patterns: list[Word] = []
        while True:
            self.blanks()
            pattern = self.word()
            self.blanks()
            char = self.text[self.at : self.at + 1]
            if pattern is None or char not in ("|", ")") or not char:
                self.fail("a pattern of `case` is not understood")
            patterns.append(pattern)
            self.at += 1
            if char == ")":
                break
        body = self.items(frozenset({"esac"}))
        found = re.match(r";;&|;;|;&", self.text[self.at : self.at + 3])
        self.at += len(found[0]) if found else 0
        return Arm(tuple(patterns), tuple(body), found[0] if found else "")
