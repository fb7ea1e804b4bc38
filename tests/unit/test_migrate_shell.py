"""Shell scripts as trees, and what their variables hold without running them."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflows.migrate.shell.memory import Listed
from airflows.migrate.shell.parse import parse
from airflows.migrate.shell.run import Machine, StoppedError
from airflows.migrate.shell.tree import ParseError

VALUES = yaml.safe_load((Path(__file__).parents[1] / "data" / "shell-values.yaml").read_text())


def follow(text: str, **values: str) -> Machine:
    machine = Machine(text, values, VALUES["files"].get)
    machine.run(parse(text).items)
    return machine


def value(text: str, name: str = "X", **values: str):
    found = follow(text, **values).memory.values.get(name)
    return found.ordered() if isinstance(found, Listed) else found


def items(text: str) -> list[str]:
    script = parse(text)
    return [script.source(item) for item in script.items]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a b; c & d\ne", ["a b", "c", "d", "e"]),
        ("a &&\n b || c", ["a &&\n b || c"]),
        ("a | b |& c # d\n# e\nf", ["a | b |& c", "f"]),
        ("if a; then b; elif c; then d; else e; fi; f", ["if a; then b; elif c; then d; else e; fi", "f"]),
        ("for x in 1 2\ndo a; done\nb", ["for x in 1 2\ndo a; done", "b"]),
        ("for ((i=0; i<3; i++)); do a; done", ["for ((i=0; i<3; i++)); do a; done"]),
        ("case $x in a|b) c ;; (d) e ;& *) f; esac; g", ["case $x in a|b) c ;; (d) e ;& *) f; esac", "g"]),
        ("f() { a; }\nfunction g { b; }\nfunction h() ( c )", ["f() { a; }", "function g { b; }", "function h() ( c )"]),
        ("cat <<A <<-'B' | x\n$(\nA\n\t)\n\tB\ny", ["cat <<A <<-'B' | x", "y"]),
        ("a $(b; c \")\" ')' $(d)) e", ["a $(b; c \")\" ')' $(d)) e"]),
        ('a "$(b "c d")" `e \\`f\\``', ['a "$(b "c d")" `e \\`f\\``']),
        ("a ${b:-\"}\"} ${c#'}'} $((1 + (2)))", ["a ${b:-\"}\"} ${c#'}'} $((1 + (2)))"]),
        ('A=(1 "2 3" # four\n 5) b', ['A=(1 "2 3" # four\n 5) b']),
        ("[[ $a == b && ( -z c || d < e ) ]] && f", ["[[ $a == b && ( -z c || d < e ) ]] && f"]),
        ('a >b 2>&1 <<<"c" &>d 3<e', ['a >b 2>&1 <<<"c" &>d 3<e']),
        ("a \\\n  b\nc", ["a \\\n  b", "c"]),
        ("{ a; } > b; ( c ) &", ["{ a; } > b", "( c )"]),
        ("! a | b; time c", ["! a | b", "time c"]),
        ("a#b c", ["a#b c"]),
        ("diff <(a) >(b)", ["diff <(a) >(b)"]),
        ("", []),
    ],
)  # fmt: skip
def test_a_script_falls_into_its_commands(text, parts):
    assert items(text) == parts


@pytest.mark.parametrize(
    "text",
    ["if a; then b", "for x in", "a 'b", 'a "b', "a $(b", "a `b", "${a", "fi", "a )", "case x in a) b", "a <<E\nb",
     "f() ", "a && ", "a | ", "{ a; ", "( a", "[[ a", "coproc a", "select x in a; do b; done", "a @(b|c)", "()", "a >"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text):
    with pytest.raises(ParseError):
        parse(text)


def test_deep_nesting_is_refused():
    with pytest.raises(ParseError):
        parse("( " * 2000 + "a" + " )" * 2000)


@given(st.text(alphabet="a$({[\"'`\\\n ;&|<>)}]#=x", max_size=40))
def test_any_text_is_parsed_or_refused(text):
    try:
        script = parse(text)
    except ParseError:
        return
    else:
        assert all(0 <= item.start < item.end <= item.stop <= len(text) for item in script.items)


@pytest.mark.parametrize(("text", "wanted"), VALUES["values"])
def test_what_a_variable_holds(text, wanted):
    assert value(text, I="3") == wanted


@pytest.mark.parametrize(
    ("text", "has_effect"),
    [
        ("A=1; B=(1 2)", False), ("case 1 in 1) A=2;; esac", False), ("for i in 1 2; do A=$i; done", False),
        ("A=1; echo $A", True), ("A=$(sed -n 1p p.txt)", False), ("A=1 > file", True), ("cd x", True), ("A=1 &", True),
        ("set -e", True), ("[ -f x ]", True), ("export A=1", False), ("export A", True), ("read A <<< 1", False),
        ("if false; then rm x; fi", False), ("f() { A=1; }", True), ("A=1 | cat", True),
    ],
)  # fmt: skip
def test_effects_are_noticed(text, has_effect):
    assert follow(text).has_effect is has_effect


@pytest.mark.parametrize(
    "text", ["exit 1", "[ 1 = 1 ] && exit", "while true; do :; done", "set -e; false", "exec python x"]
)
def test_a_script_that_ends_or_never_does_is_stopped(text):
    with pytest.raises(StoppedError):
        follow(text)


def test_lines_that_were_picked_are_known_even_when_the_file_is_not_there():
    machine = follow('A=$(sed -n "${I}p" none.txt)\nB=$(awk "NR==2" p.txt)', I="7")
    assert machine.files.picked == [("none.txt", 7), ("p.txt", 2)]


def test_files_are_looked_for_where_the_script_went():
    seen = []
    machine = Machine("", {}, seen.append)
    machine.run(parse("cd a/b\nX=$(sed -n 1p c)\ncd /d\nX=$(sed -n 1p c)\ncd $E\nX=$(sed -n 1p c)").items)
    assert seen == ["a/b/c", "/d/c"]
