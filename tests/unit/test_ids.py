"""Identity: the same under key order, float form, hash seed, and on every run."""

import datetime as dt
import json
import os
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflows.errors import SpecError
from airflows.ids import (
    NAME_PATTERN,
    SweepId,
    canonical_json,
    digest,
    parse_id,
    parse_token,
    slug,
    sweep_id,
    token,
)

DEFINITION = {
    "base": {
        "command": "python train.py",
        "parameters": {"lr": 0.01, "opt": "adam", "µ": True, "none": None},
    },
    "space": [["parameters.lr", [0.1, 0.2]], ["parameters.opt", ["adam", "sgd", "lion"]]],
}
FOREVER = "275befff644650e55303a8f469023eabef3bf41afb57cbc459a64ea240203085"

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
names = st.from_regex(NAME_PATTERN, fullmatch=True)


def shuffled(tree, rng):
    """Return the same tree with every mapping's keys in another order."""
    if isinstance(tree, dict):
        keys = list(tree)
        rng.shuffle(keys)
        return {key: shuffled(tree[key], rng) for key in keys}
    if isinstance(tree, list):
        return [shuffled(item, rng) for item in tree]
    return tree


# Canonical JSON and digests


@given(trees, st.integers())
def test_digest_does_not_depend_on_key_order(tree, seed):
    assert digest(shuffled(tree, random.Random(seed))) == digest(tree)


@given(trees)
def test_canonical_json_reads_back_as_the_same_tree(tree):
    assert json.loads(canonical_json(tree)) == tree


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_digest_does_not_depend_on_how_a_float_was_written(value):
    longer = f"{value:.25e}"

    assert digest(float(longer)) == digest(value)


def test_floats_written_differently_are_one():
    assert digest([0.10, 1e-3, 5e5]) == digest([0.1, 1.0e-3, 500000.0])


def test_an_integer_and_a_float_differ():
    assert digest(1) != digest(1.0)


def test_true_is_not_one_and_text_is_not_a_number():
    assert len({digest(value) for value in (True, 1, "1", "true", None, "null", "")}) == 7


def test_tuples_are_lists_and_dates_are_text():
    assert canonical_json((1, (2,))) == "[1,[2]]"
    assert canonical_json(dt.date(2026, 1, 31)) == '"2026-01-31"'


def test_a_digest_is_the_same_for_ever():
    """Ids in ledgers out there depend on it: this value must never change."""
    assert digest(DEFINITION) == FOREVER


def test_ids_do_not_depend_on_the_hash_seed():
    script = (
        "import json, sys; from airflows.ids import digest, sweep_id, token\n"
        "d = json.load(sys.stdin); s = sweep_id('digits', digest(d)); print(digest(d), s, token(s, 7, 1))\n"
        "print(digest({k: d[k] for k in {*d}}))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps(DEFINITION),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }

    assert len(answers) == 1
    assert answers.pop().startswith(FOREVER)


# Sweeps and tokens


def test_sweep_id_is_the_name_and_six_hex():
    assert sweep_id("digits-lr", "d").startswith("digits-lr-")
    assert len(sweep_id("digits-lr", "d")) == len("digits-lr-") + 6


def test_definition_name_and_instance_each_make_another_sweep():
    ids = {
        sweep_id("a", "d"),
        sweep_id("a", "e"),
        sweep_id("b", "d"),
        sweep_id("a", "d", "x"),
        sweep_id("A", "d"),
    }

    assert len(ids) == 5


@given(names, st.text(max_size=64), st.integers(0, 99_999_999), st.integers(0, 99))
def test_a_token_is_safe_everywhere(name, definition, number, attempt):
    made = token(sweep_id(name, definition), number, attempt)

    assert len(made) <= 45
    assert made[0].isalpha()
    assert made[-1].isalnum()
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert parse_token(made) == (number, attempt)


@given(
    names,
    st.tuples(st.integers(0, 10**8), st.integers(0, 99)),
    st.tuples(st.integers(0, 10**8), st.integers(0, 99)),
)
def test_attempts_of_a_sweep_never_share_a_token(name, one, other):
    sweep = sweep_id(name, "d")

    assert (token(sweep, *one) == token(sweep, *other)) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [("a_b", "a-b"), ("Digits", "digits"), ("x" * 20 + "1", "x" * 20 + "2")]
)
def test_names_that_look_alike_when_shortened_have_different_tokens(one, other):
    tokens = [token(sweep_id(name, "d"), 0, 0) for name in (one, other)]

    assert slug(one) == slug(other)
    assert tokens[0] != tokens[1]


def test_token_has_at_least_four_digits():
    assert token(SweepId("digits-lr-3fa9c1"), 12, 0) == "digits-lr-3fa9c1-0012-a0"
    assert token(SweepId("digits-lr-3fa9c1"), 123456, 10) == "digits-lr-3fa9c1-123456-a10"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("digits", "digits"),
        ("Digits_LR", "digits-lr"),
        ("3d-unet", "s3d-unet"),
        ("a" * 64, "a" * 20),
        ("nineteen-characters-x", "nineteen-characters"),
        ("-", "s"),
    ],
)
def test_slug(name, short):
    assert slug(name) == short


@pytest.mark.parametrize(
    "text",
    [
        "",
        "digits",
        "digits-3fa9c1-12-a0",
        "Digits-3fa9c1-0012-a0",
        "digits-3fa9c1-0012-a",
        "digits-3fa9c1-0012-a0\n",
    ],
)
def test_what_is_no_token(text):
    with pytest.raises(ValueError, match="is not an attempt's token"):
        parse_token(text)


# Ids as people type them


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("digits", ("digits", None, None)),
        ("digits-3fa9c1", ("digits-3fa9c1", None, None)),
        ("digits-3fa9c1/12", ("digits-3fa9c1", 12, None)),
        ("digits-3fa9c1/12.0", ("digits-3fa9c1", 12, 0)),
        ("digits/007.01", ("digits", 7, 1)),
    ],
)
def test_ids_are_split(text, parts):
    assert parse_id(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "/12", "digits/", "digits/x", "digits/1.", "digits/-1", "digits 1", "digits/1.0.0", "../etc", "digits/\u0661", "digits/1\n", "digits/" + "9" * 30],
)  # fmt: skip
def test_other_texts_are_refused_with_the_forms_there_are(text):
    with pytest.raises(SpecError, match=r"is not an id\. Ids look like SWEEP, SWEEP/12 or SWEEP/12\.0"):
        parse_id(text)


@given(st.text(max_size=30))
def test_any_text_is_an_id_or_refused(text):
    try:
        sweep, number, attempt = parse_id(text)
    except SpecError:
        return
    assert text.startswith(sweep)
    assert (number is None) is ("/" not in text)
    assert (attempt is None) is ("." not in text)
