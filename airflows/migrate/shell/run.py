"""Following a script without running it: which values variables get, and whether more would happen.

Only what concerns variables is carried out. Every other command is noted as an effect; variables that it may
set become unknown. Pure but for the function that reads files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflows.migrate.shell import builtins, conditions, names
from airflows.migrate.shell.arithmetic import UnknownNumberError, UnknownValueError
from airflows.migrate.shell.desk import Desk
from airflows.migrate.shell.tree import (
    Arith,
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
    Simple,
    While,
)

MAX_STEPS = 200_000
_MAX_DEPTH = 20
_LEAVING = frozenset({"break", "continue", "return"})


class StoppedError(Exception):
    """The script ends here, or what follows is not known to run."""


class _LoopEndError(Exception):
    """`break` or `continue`."""

    def __init__(self, levels: int, *, goes_on: bool) -> None:
        super().__init__()
        self.levels = levels
        self.goes_on = goes_on


class _ReturnError(Exception):
    pass


def _first_word(command: Command) -> str:
    return command.words[0].text if isinstance(command, Simple) and command.words else ""


class Machine(Desk):
    """Follows one script from its start.

    Args:
        text: the script, which the offsets of the tree refer to.
        values: variables that are known from the start.
        read: returns what a file holds, None when it cannot be read.
    """

    def __init__(self, text: str, values: dict[str, str], read: Callable[[str], str | None]) -> None:
        super().__init__(values, read)
        self.text = text
        self._steps = 0
        self._depth = 0
        self._loops = 0
        self._inside = 0

    # Lists

    def run(self, items: Sequence[Item], *, is_test: bool = False) -> bool | None:
        """Follow a list; return whether its last command succeeds, None when that is not known.

        Args:
            items: the list.
            is_test: whether it succeeds is asked for, so failure does not end the script.

        Raises:
            StoppedError: the script ends in it.
        """
        status: bool | None = True
        for item in items:
            self._check_steps()
            status = self.item(item, is_test=is_test)
        return status

    def item(self, item: Item, *, is_test: bool = False) -> bool | None:
        """Follow one entry of a list; see `run`."""
        if item.background:
            self.has_effect = True
            return True
        status, last = self._pipeline(item.first), item.first
        for op, pipeline in item.rest:
            if status is None:
                self._skip_pipeline(pipeline)
            elif status == (op == "&&"):
                status, last = self._pipeline(pipeline), pipeline
        is_last = last is item.pipelines[-1] and not last.negated
        if status is False and self.memory.ends_on_failure and is_last and not is_test:
            raise StoppedError
        return status

    def _skip_pipeline(self, pipeline: Pipeline) -> None:
        for command in pipeline.commands:
            self.skip(command)

    def skip(self, command: Command) -> None:
        """Take note of a command that may or may not run, or runs in an unknown way.

        Raises:
            UnknownValueError: it may end a loop or a function that is being followed.
        """
        self.has_effect = True
        self._forget(command)
        leaves = any(_first_word(each) in _LEAVING for each in names.walk(command))
        if leaves and (self._loops or self._depth):
            raise UnknownValueError

    def _forget(self, command: Command) -> None:
        for each in names.walk(command):
            if isinstance(each, Simple) and each.words:
                words = [word.text for word in each.words]
                self.exports |= names.exported(each.assigns, tuple(words))
                self._forget_called(words)
        self.memory.forget(names.assigned(self.text, command))

    def _forget_called(self, words: list[str]) -> None:
        if words[0] in builtins.OPAQUE and not builtins.is_harmless(words):
            self.memory.forget_all()
        if words[0] in ("cd", "pushd", "popd"):
            self.directory = None
        function = self.functions.pop(words[0], None)
        if function is not None:
            self._forget(function.body)
            self.functions[words[0]] = function

    def _pipeline(self, pipeline: Pipeline) -> bool | None:
        if len(pipeline.commands) > 1:
            # Each part runs in a shell of its own and changes no variable of this one.
            self.has_effect = True
            return None
        status = self._command(pipeline.commands[0])
        return not status if pipeline.negated and status is not None else status

    # Commands

    def _command(self, command: Command) -> bool | None:
        match command:
            case Simple():
                return self._simple(command)
            case Function():
                self.functions[command.name] = command
                self.has_effect = True
                return True
            case Group(is_subshell=True):
                self.has_effect = True
                return None
        before = self._stdin
        self._inside += 1
        try:
            self.redirected(command.redirects)
            return self._compound(command)
        except UnknownValueError as exc:
            self.skip(command)
            if isinstance(exc, UnknownNumberError) and self._inside > 1:
                raise
            return None
        finally:
            self._stdin = before
            self._inside -= 1

    def _compound(self, command: Command) -> bool | None:  # noqa: PLR0911 - one for each kind
        match command:
            case Group():
                return self.run(command.body)
            case If():
                return self._if(command)
            case For():
                return self._for(command)
            case CFor():
                return self._c_for(command)
            case While():
                return self._while(command)
            case Case():
                return self._case(command)
            case Arith():
                return self.expander.number(command.text) != 0
            case Cond():
                return conditions.condition_holds(command.words, self.expander)
            case _:
                raise UnknownValueError

    def _if(self, command: If) -> bool | None:
        for test, body in command.branches:
            status = self.run(test, is_test=True)
            if status is None:
                raise UnknownValueError
            if status:
                return self.run(body)
        return self.run(command.orelse)

    def _case(self, command: Case) -> bool | None:
        value = self.expander.text(command.word.text)
        for arm in command.arms:
            if not any(self.expander.pattern(word.text).fullmatch(value) for word in arm.patterns):
                continue
            if arm.ending not in (";;", ""):
                raise UnknownValueError
            return self.run(arm.body)
        return True

    def _for(self, command: For) -> bool | None:
        if command.words is None:
            raise UnknownValueError
        values = [value for word in command.words for value in self.expander.fields(word.text)]
        for value in values:
            self.memory.assign(command.name, value)
            if not self._once(command.body):
                break
        return None

    def _c_for(self, command: CFor) -> bool | None:
        self.expander.number(command.first)
        while not command.test.strip() or self.expander.number(command.test):
            if not self._once(command.body):
                break
            self.expander.number(command.step)
        return None

    def _while(self, command: While) -> bool | None:
        while True:
            status = self.run(command.test, is_test=True)
            if status is None:
                raise UnknownValueError
            if status == command.is_until or not self._once(command.body):
                return None

    def _once(self, body: Sequence[Item]) -> bool:
        """Run the body of a loop once; return whether the loop goes on."""
        self._check_steps()
        self._loops += 1
        try:
            self.run(body)
        except _LoopEndError as end:
            if end.levels > 1:
                raise _LoopEndError(end.levels - 1, goes_on=end.goes_on) from None
            return end.goes_on
        finally:
            self._loops -= 1
        return True

    def _check_steps(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise StoppedError

    # Simple commands

    def _simple(self, command: Simple) -> bool | None:
        try:
            return self._known_simple(command)
        except UnknownValueError as exc:
            self._forget(command)
            self.has_effect = self.has_effect or bool(command.words) or bool(command.redirects)
            if isinstance(exc, UnknownNumberError) and self._inside:
                raise
            return None

    def _known_simple(self, command: Simple) -> bool | None:
        if not command.words:
            self.has_effect = self.has_effect or bool(command.redirects)
            for assign in command.assigns:
                self.assign(assign)
            return True
        words = [field for word in command.words for field in self.expander.fields(word.text)]
        if not words:
            raise UnknownValueError
        before = self._stdin
        try:
            return self._called(command, words)
        finally:
            self._stdin = before

    def _called(self, command: Simple, words: list[str]) -> bool | None:
        name = words[0]
        if name in self.functions:
            return self._call(self.functions[name], words[1:])
        if name in ("break", "continue", "return", "exit", "exec"):
            return self._leave(words)
        if name in builtins.OPAQUE:
            self.has_effect = True
            if not builtins.is_harmless(words):
                self.memory.forget_all()
            return None
        if name in builtins.DECLARING:
            return self.declare(command, words)
        action = builtins.ACTIONS.get(name)
        if action is None or (command.assigns and name != "read"):
            self.has_effect = True
            return None
        self.redirected(command.redirects)
        return action(self, words[1:], self.field_separator(command))

    def _leave(self, words: list[str]) -> bool | None:
        if words[0] in ("break", "continue"):
            if not self._loops:
                raise UnknownValueError
            levels = int(words[1]) if len(words) > 1 and words[1].isdigit() else 1
            raise _LoopEndError(levels, goes_on=words[0] == "continue")
        if words[0] == "return" and self._depth:
            raise _ReturnError
        if words == ["exec"]:
            self.has_effect = True
            return True
        raise StoppedError

    def _call(self, function: Function, arguments: list[str]) -> bool | None:
        if self._depth > _MAX_DEPTH:
            raise StoppedError
        before, self.memory.arguments = self.memory.arguments, arguments
        kept = {
            name: self.memory.values[name] for name in self._locals(function) if name in self.memory.values
        }
        self._depth += 1
        try:
            return self._command(function.body)
        except _ReturnError:
            return None
        finally:
            self._depth -= 1
            self.memory.arguments = before
            self.memory.forget(self._locals(function))
            self.memory.values.update(kept)

    def _locals(self, function: Function) -> set[str]:
        found: set[str] = set()
        for each in names.walk(function.body):
            if isinstance(each, Simple) and each.words and each.words[0].text == "local":
                found |= names.assigned(self.text, each)
        return found
