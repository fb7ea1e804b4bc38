"""What an unquoted scalar is to AI Runtime's CLI, and which ones are better not left unquoted."""

import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows import yamlio
from airflows.errors import SpecError
from airflows.scalars import doubt, go_text, resolve

# What an unquoted scalar is to AI Runtime's CLI.
AGREED = {
    "1e-3": 0.001,
    "1.0e-3": 0.001,
    "1E-4": 0.0001,
    "5e5": 500000.0,
    "1e3": 1000.0,
    ".5": 0.5,
    "+.5": 0.5,
    "5.": 5.0,
    "0.10": 0.1,
    "0": 0,
    "-0": 0,
    "+12": 12,
    "0x18": 24,
    "18446744073709551615": 2**64 - 1,
    ".inf": math.inf,
    "-.INF": -math.inf,
    "true": True,
    "True": True,
    "TRUE": True,
    "FALSE": False,
    "tRUE": "tRUE",
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "nULL": "nULL",
    "nan": "nan",
    "inf": "inf",
    "abc": "abc",
    "10:75": "10:75",
    "1.2.3": "1.2.3",
    "12b": "12b",
    "3_layers": "3_layers",
    "_12": "_12",
    "0x": "0x",
    "1,000": "1,000",
    "2024-01": "2024-01",
    "20240115": 20240115,
    ".": ".",
    "1e": "1e",
    "v1.0": "v1.0",
    "once": "once",
    "None": "None",
    "nope": "nope",
    "\u0661": "\u0661",
    "0x1p-2": "0x1p-2",
    "12h": "12h",
}
DOUBTFUL = {
    **{word: word for word in ["on", "off", "yes", "no", "y", "n", "On", "OFF", "YES", "nO", "Y", "N"]},
    "010": 8,
    "08": 8.0,
    "007": 7,
    "00": 0,
    "-010": -8,
    "0o17": 15,
    "-0o17": -15,
    "0b11": 3,
    "0X1F": 31,
    "-0x1F": -31,
    "1_000": 1000,
    "1_000.5": 1000.5,
    "0x_1F": 31,
    "12_": 12,
    "1:30": "1:30",
    "12:30:45": "12:30:45",
    "1:30.5": "1:30.5",
    "2024-01-15": "2024-01-15T00:00:00Z",
    "2024-1-5": "2024-01-05T00:00:00Z",
    "2024-01-15T10:00:00+02:00": "2024-01-15T10:00:00+02:00",
    "2024-01-15 10:00:00": "2024-01-15T10:00:00Z",
    "2024-01-15t10:00:00.50Z": "2024-01-15T10:00:00.5Z",
    "2024-13-45": "2024-13-45",
    "1e400": "1e400",
    "2024-01-15T10:00:00": "2024-01-15T10:00:00",
    "18446744073709551616": 2.0**64,
    "9" * 400: "9" * 400,
}


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


@pytest.mark.parametrize(("text", "value"), [*AGREED.items(), *DOUBTFUL.items()])
def test_an_unquoted_scalar_is_what_ai_runtime_takes_it_for(text, value):
    assert same(parse(f"a: {text}\n").value["a"], value)
    assert same(parse(f"- {text}\n").value[0], value)


def test_nothing_is_null_and_nan_is_read():
    assert parse("a:\nb: ''\n").value == {"a": None, "b": ""}
    assert all(math.isnan(resolve(text)) for text in (".nan", ".NaN", ".NAN"))


@pytest.mark.parametrize("text", [*AGREED, "1.5e-07", "x y"])
def test_what_all_readers_agree_on_is_fine_in_a_sweep(text):
    document = parse(f"a: {text}\n", "sweep")

    assert document.notices == ()


@pytest.mark.parametrize("text", DOUBTFUL)
def test_what_readers_disagree_about_is_refused_in_a_sweep(text):
    error = refused(f"name: x\nspace:\n  parameters.k: [1, {text}]\n", "sweep")

    assert (error.line, error.field) == (3, "space.'parameters.k'[1]")
    assert error.hint
    assert "in quotes" in error.hint


@pytest.mark.parametrize("text", DOUBTFUL)
def test_what_readers_disagree_about_is_noticed_in_a_train_yaml(text):
    (notice,) = parse(f"a: 1\nb: {text}\n").notices

    assert (notice.file, notice.line, notice.field) == ("f.yaml", 2, "b")
    assert "AI Runtime" in notice.message


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("on", "true for"),
        ("Off", "false for"),
        ("010", "8 or 10 for"),
        ("1_000", "1000 for"),
        ("1:30", "90 for"),
    ],
)
def test_the_fix_is_named(text, fix):
    assert fix in str(refused(f"a: {text}", "sweep"))
    assert f"'{text}' in quotes" in str(refused(f"a: {text}", "sweep"))


@pytest.mark.parametrize("text", DOUBTFUL)
def test_quotes_make_anything_text(text):
    document = parse(f"a: '{text}'\nb: \"{text}\"\nc: |-\n  {text}\nd: !!str {text}\n", "sweep")

    assert document.value == dict.fromkeys("abcd", text)
    assert document.notices == ()


@settings(deadline=None)
@given(st.text(st.sampled_from("0123456789+-._:eExobTZ aonyf"), max_size=9))
def test_pyyaml_agrees_wherever_nothing_is_in_doubt(text):
    text = text.strip()
    if doubt(text) is not None or not text or text[0] == "-" or ": " in text or text.endswith(":"):
        return
    if text.split(" ")[0] == "...":  # the end of a document
        return
    value = resolve(text)
    theirs = yaml.safe_load(text)
    # PyYAML takes 1e3, 1.e3 and +.5 for text; YAML 1.2 and Go do not.
    assert same(value, theirs) or (isinstance(value, float) and theirs == text) or math.isnan(theirs)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (2.5, "2.5"),
        (1000.0, "1000"),
        (999999.0, "999999"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (0.0001, "0.0001"),
        (1e-5, "1e-05"),
        (-0.0, "-0"),
        (math.inf, ".inf"),
        (-math.inf, "-.inf"),
        (math.nan, ".nan"),
        (True, "true"),
        (None, ""),
        ("007", "007"),
    ],
)
def test_a_number_in_a_text_field_is_written_as_go_writes_it(value, text):
    assert go_text(value) == text
