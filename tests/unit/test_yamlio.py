"""Reading YAML as AI Runtime's CLI does, and refusing what cannot be read in one clear paragraph."""

import contextlib
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows import yamlio
from airflows.errors import SpecError
from airflows.yamlio import build
from airflows.yamlio.read import MAX_BYTES


def parse(text: str, dialect="train") -> yamlio.Document:
    return yamlio.parse(text, file="f.yaml", dialect=dialect)


def refused(text: str, dialect="train") -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse(text, dialect)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert caught.value.file == "f.yaml"
    return caught.value


def same(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right


def test_lines_and_source_text_are_kept():
    document = parse("a: 0042\nb:\n  - x\n  - {c: 1.50, d: 'on'}\n\ne: |\n  l\n")

    assert [document.line(path) for path in (("a",), ("b",), ("b", 1, "d"), ("e",))] == [1, 2, 4, 6]
    assert [document.text(path) for path in (("a",), ("b", 1, "c"), ("b", 1, "d"), ("e",))] == [
        *["0042", "1.50", "on", "l\n"]
    ]
    assert document.text(("b",)) is None


def test_the_line_of_what_is_missing_is_that_of_its_parent():
    document = parse("a: 1\nb:\n  c: 1\n")

    assert document.line(("b", "x", "y")) == 2
    assert document.line(("x",)) == 1
    assert document.text(("b", "x")) is None


def test_anchors_and_merges_unfold_to_separate_values():
    document = parse("a: &a {x: 1, y: {z: 2}}\nb: {<<: *a, x: 9}\nc: [*a, *a]\nd: {<<: [{x: 5}, *a]}\n")

    assert document.value["b"] == {"x": 9, "y": {"z": 2}}
    assert document.value["d"] == {"x": 5, "y": {"z": 2}}
    assert document.value["c"][0] is not document.value["c"][1]
    assert document.value["c"][0]["y"] is not document.value["a"]["y"]
    assert document.line(("b", "x")) == 2
    assert document.line(("b", "y", "z")) == 1


def test_a_quoted_merge_key_is_a_key():
    assert parse("a: {'<<': 1}").value == {"a": {"<<": 1}}


def test_keys_keep_their_source_text():
    assert parse("a: {1: x, 1.50: y, on: z, ~: n, '': e}").value == {
        "a": {"1": "x", "1.50": "y", "on": "z", "~": "n", "": "e"}
    }


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n\n", "\ufeff"])
def test_a_text_without_a_document_is_empty(text):
    document = parse(text)

    assert (document.empty, document.value) == (True, None)


def test_a_null_document_is_not_empty():
    assert parse("null\n").empty is False
    assert parse("---\n").empty is False


@pytest.mark.parametrize(("text", "line"), [("a: 1\n---\nb: 2\n", 2), ("a: 1\n...\nb: 2\n", 3)])
def test_only_the_first_document_is_read_and_that_is_said(text, line):
    document = parse(text)

    assert document.value == {"a": 1}
    assert [(notice.line, "first document" in notice.message) for notice in document.notices] == [
        (line, True)
    ]
    assert parse("a: 1\n---\n[unclosed").value == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, ["'a'", "lines 1 and 3"]),
        ("a: {b: 1, b: 2}\n", 1, ["a.b", "twice"]),
        ("a: 1\n'a': 2\n", 2, ["twice"]),
        ("a: b: c\n", 1, ["quotes"]),
        ("a: [1,\n\nb: 2\n", 3, ["',' or ']'"]),
        ("x: 1\na: 'b\nc: 1\n", 2, ["does not end"]),
        ("a:\n\tb: 1\n", 2, ["tab", "spaces"]),
        ("a: @x\n", 1, ["quotes"]),
        ("a: *x\n", 1, ["*x", "no anchor"]),
        ("a: &a [*a]\n", 1, ["*a", "no anchor"]),
        ("a:\n  b: !!python/object/apply:os.system [ls]\n", 2, ["a.b", "python/object", "not supported"]),
        ("a: !mine x\n", 1, ["!mine"]),
        ("a: !!binary aGk=\n", 1, ["!!binary"]),
        ("a: !!int x\n", 1, ["!!int"]),
        ("? [1]\n: 2\n", 1, ["key"]),
        ("a: {<<: 3}\n", 1, ["<<"]),
        ("a: 1\nb: \x07\n", 2, ["'\\x07'"]),
        ("a: \x00\n", 1, ["'\\x00'"]),
        ("a: \ud800\n", 1, ["'\\ud800'"]),
    ],
)
def test_a_bad_text_is_refused_with_its_line(text, line, words):
    error = refused(text)

    assert error.line == line
    assert [word for word in words if word not in str(error)] == []


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "a: &a {k: 1}\n"
        + "".join(
            f"{b}: &{b} {{x: *{a}, y: *{a}}}\n"
            for a, b in zip("abcdefghijklmnopqrs", "bcdefghijklmnopqrst", strict=True)
        ),
        "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        "".join(" " * depth + "a:\n" for depth in range(1000)),
        "- &a x\n" + "- *a\n" * 150_000,
    ],
)
def test_a_text_made_to_exhaust_its_reader_is_refused_in_little_memory(text):
    error = refused(text)

    assert error.line is not None


def test_a_text_of_too_many_values_is_refused(monkeypatch):
    monkeypatch.setattr(build, "MAX_VALUES", 1000)

    assert parse("[" + "1," * 999 + "]").value == [1] * 999
    assert "more than 1,000 values" in str(refused("[" + "1," * 1000 + "]"))
    assert "more than 1,000 values" in str(refused("".join(f"k{n}: v\n" for n in range(500))))


@pytest.mark.parametrize("text", ["a: " + "9" * 100_000, "a: 1" + ":1" * 100_000, "a: 1" + "_" * 100_000])
def test_a_number_without_end_is_refused_in_a_short_message(text):
    value = parse(text).value["a"]

    assert isinstance(value, str | int)
    assert all(len(notice.message) < 400 for notice in parse(text).notices)


def test_notices_do_not_grow_without_end():
    assert len(parse("[" + "on," * 1000 + "]").notices) == 50


@pytest.fixture
def file(tmp_path):
    return tmp_path / "train.yaml"


def unreadable(path, dialect="train") -> str:
    with pytest.raises(SpecError) as caught:
        yamlio.read(path, dialect=dialect)
    assert caught.value.file == str(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_file_is_read(file):
    file.write_bytes(b"\xef\xbb\xbfa: \xc2\xb5\r\nb: 2\r\n")

    document = yamlio.read(file, dialect="train")

    assert document.value == {"a": "µ", "b": 2}
    assert document.file == str(file)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\x02\x01\x01\x00\x00", "binary"),
        ("a: 1\n".encode("utf-16"), "UTF-16"),
        (b"a: 1\nb: caf\xe9\n", "not UTF-8 text: it holds the byte 0xe9"),
        (b"a: 1\n" * 300_000, "larger than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_text_is_refused(file, data, words):
    file.write_bytes(data)

    assert words in unreadable(file)


def test_ten_megabytes_are_refused_in_any_dialect(file):
    with file.open("wb") as stream:
        stream.truncate(10_000_000)

    assert "larger than" in unreadable(file, "train")
    assert "larger than" in unreadable(file, "sweep")
    assert MAX_BYTES["sweep"] < 10_000_000


def test_a_missing_file_a_directory_and_odd_names_are_refused(tmp_path, file):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert "no such file" in unreadable(file)
    assert "directory" in unreadable(tmp_path)
    assert "cannot be read" in unreadable(tmp_path / "loop")
    assert "cannot be read" in unreadable(tmp_path / "a\0b")
    assert "cannot be read" in unreadable(tmp_path / ("n" * 300))
    file.write_text("")
    assert "cannot be read" in unreadable(file / "below")


@pytest.fixture
def locked(file):
    """A file that may not be read; as root reads everything, be somebody else meanwhile."""
    file.write_text("a: 1\n")
    file.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield file
    os.seteuid(user)


def test_a_file_without_permission_is_refused(locked):
    assert "no permission" in unreadable(locked)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("007", 7),
        ("1e3", 1000.0),
        ("'007'", "007"),
        ("  7  ", 7),
        ("x # comment", "x"),
        ("[einops, rich]", ["einops", "rich"]),
        ("{a: 1}", {"a": 1}),
        ("note: x", {"note": "x"}),
        ("--lr=0.1 --wd=0.01", "--lr=0.1 --wd=0.01"),
        ("yes", "yes"),
    ],
)
def test_the_value_of_an_override_is_yaml(text, value):
    assert same(yamlio.parse_scalar(text, field="parameters.x"), value)


@pytest.mark.parametrize("text", ["[1,", "@x", "`x`", "*x", "%d", "{a", "'x"])
def test_a_value_that_is_no_yaml_names_its_key(text):
    with pytest.raises(SpecError) as caught:
        yamlio.parse_scalar(text, field="parameters.x")

    assert caught.value.field == "parameters.x"
    assert "quotes" in str(caught.value).lower()


def test_reading_yaml_needs_no_pydantic():
    script = "import sys, airflows.yamlio; sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@settings(deadline=None)
@given(st.text(st.sampled_from("ab:-[]{}&*!|>'\"%@`#,?\n\t \\~<=0.19e_x\x85\u2028\x00é"), max_size=40))
def test_any_text_is_read_or_refused(text):
    for dialect in ("train", "sweep"):
        with contextlib.suppress(SpecError):
            parse(text, dialect)
