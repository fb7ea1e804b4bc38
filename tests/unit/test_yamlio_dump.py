"""What airflows writes is read alike by YAML 1.1 readers, YAML 1.2 readers and itself."""

import enum
import math
from types import MappingProxyType

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from airflows import yamlio
from airflows.errors import SpecError

TRAPS = [
    *[
        "",
        " ",
        "  x",
        "x  ",
        "~",
        "null",
        "Null",
        "NULL",
        "true",
        "True",
        "FALSE",
        "yes",
        "No",
        "ON",
        "off",
        "y",
        "N",
    ],
    *[
        "1e3",
        "1e-3",
        "1E4",
        "1.",
        ".5",
        "+.5",
        "-.5",
        "+1",
        "-1",
        "010",
        "0o17",
        "0x1F",
        "0b11",
        "1_000",
        "1:30",
    ],
    *[
        "12:30:45",
        "nan",
        "NaN",
        ".nan",
        ".NaN",
        "inf",
        ".inf",
        "-.inf",
        "+.Inf",
        "1e400",
        "2024-01-15",
        "0",
        "-0",
    ],
    *[
        "2024-01-15 10:00:00",
        "2024-01-15T10:00:00Z",
        "=",
        "<<",
        "-",
        "?",
        ":",
        "--- ",
        "---",
        "...",
        "- a",
        "? a",
    ],
    *[
        "a: b",
        "a:",
        ":a",
        "a #b",
        "#a",
        "&a",
        "*a",
        "!a",
        "!!str a",
        "|",
        ">",
        "%a",
        "@a",
        "`a",
        "'",
        '"',
        "''",
        "\\",
    ],
    *[
        "[a",
        "]",
        "{a}",
        "a, b",
        ".",
        "..",
        "./a",
        "../a",
        "~/a",
        "a\n",
        "\na",
        "a\nb",
        "a\n\nb\n",
        "a\n\n",
        "\n",
        " a\nb",
    ],
    *[
        "a \nb",
        "a\n b",
        "\ta",
        "a\tb",
        "a\t\nb",
        "a\n\tb",
        "\r",
        "a\r\nb",
        "\x85",
        "a\x85b",
        "\u2028",
        "a\u2029b",
        "\xa0",
    ],
    *[
        "µ=0.1",
        "😀",
        "\ufeff",
        "\ufeffa",
        "a\ufeff",
        "\x00",
        "\x07",
        "\x7f",
        "\x9f",
        "\ufffe",
        "ключ: значение",
        "e\u0301",
    ],
    *[
        "a" * 200,
        "a b " * 50,
        "#!/bin/sh\nset -e\n  x: y # z\n",
        "- a\n- b\n",
        "--- a\n---\n...\n",
        "x\n---\ny\n",
        "k: |\n  a\n",
    ],
]
FLOATS = [
    1e-05,
    1e300,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    0.1,
    1.0,
    -0.0,
    1e16,
    1.5e-7,
    123456789.0,
    1e22,
]

texts = st.one_of(st.sampled_from(TRAPS), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(FLOATS), texts)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def by_pyyaml(text: str) -> object:
    return yaml.safe_load(text)


def by_pyyaml_in_c(text: str) -> object:
    return yaml.load(text, Loader=yaml.CSafeLoader)


def by_ruamel(text: str) -> object:
    loader = YAML(typ="safe", pure=True)
    loader.version = (1, 2)
    return loader.load(text)


def by_airflows(text: str) -> object:
    return yamlio.parse(text, file="f", dialect="sweep").value


READERS = [by_pyyaml, by_pyyaml_in_c, by_ruamel, by_airflows]


def same(left: object, right: object) -> bool:
    """Equality that tells 1 from 1.0 and True, and finds NaN equal to itself."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and (left == right or (left != left and right != right))  # noqa: PLR0124


def in_64_bits(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(in_64_bits, value.values()))
    if isinstance(value, list):
        return all(map(in_64_bits, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**64


@pytest.mark.parametrize(
    "value", [*TRAPS, *FLOATS, None, True, False, 0, -7, 2**63, [], {}, [[]], [{}], {"a": {}}]
)
def test_a_value_comes_back_as_it_was_from_every_reader(value):
    for tree in (value, [value], {"key": value}, {"a": [{"b": value}, value]}):
        text = yamlio.dump(tree)
        assert [reader.__name__ for reader in READERS if not same(reader(text), tree)] == []


@pytest.mark.parametrize("key", TRAPS)
def test_a_key_comes_back_as_it_was_from_every_reader(key):
    tree = {"a": {key: {key: [key]}}, key: 1}
    text = yamlio.dump(tree)
    assert [reader.__name__ for reader in READERS if not same(reader(text), tree)] == []


@given(trees)
@example({"a": "a\n\n", "b": ["\ufeff", {"": "1e3"}]})
@settings(max_examples=200, deadline=None)
def test_any_tree_comes_back_from_every_reader(tree):
    text = yamlio.dump(tree)
    readers = READERS if in_64_bits(tree) else READERS[:3]
    assert [reader.__name__ for reader in readers if not same(reader(text), tree)] == []


def test_plain_text_stays_plain_and_scripts_stay_readable():
    tree = {
        "experiment_name": "ner-base",
        "command": 'cd "$CODE_SOURCE_PATH"\npython fit.py --lr 1e-3\n',
        "parameters": {
            "lr": 1e-05,
            "tag": "1e3",
            "path": "./src",
            "layers": [64, 32],
            "none": None,
            "on": True,
        },
        "empty": {},
    }

    assert yamlio.dump(tree) == (
        "experiment_name: ner-base\n"
        "command: |\n"
        '  cd "$CODE_SOURCE_PATH"\n'
        "  python fit.py --lr 1e-3\n"
        "parameters:\n"
        "  lr: 1.0e-05\n"
        "  tag: '1e3'\n"
        "  path: ./src\n"
        "  layers:\n"
        "  - 64\n"
        "  - 32\n"
        "  none: null\n"
        "  'on': true\n"
        "empty: {}\n"
    )


def test_shared_parts_are_written_out_each_time():
    shared = [1]

    assert yamlio.dump({"a": shared, "b": shared}) == "a:\n- 1\nb:\n- 1\n"


def test_relatives_of_plain_types_are_written_as_those():
    class Word(str, enum.Enum):  # noqa: UP042 - a StrEnum would print well anyway
        ONE = "on"

    class Number(float):
        def __repr__(self) -> str:
            return f"Number({float(self)})"

    one = enum.IntEnum("One", "X").X
    tree = {"a": (1, 2), "b": Word.ONE, "c": Number(0.1), 3: MappingProxyType({1.5: None}), None: one}

    assert by_pyyaml(yamlio.dump(tree)) == {"a": [1, 2], "b": "on", "c": 0.1, "3": {"1.5": None}, "": 1}


def test_what_has_no_place_in_yaml_is_refused():
    endless: list[object] = []
    endless.append(endless)

    for value, words in (
        (object(), "object"),
        ({1}, "set"),
        ("\ud800", "half a character"),
        (endless, "deeply"),
    ):
        with pytest.raises(SpecError, match=words):
            yamlio.dump({"a": value})
