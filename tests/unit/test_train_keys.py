"""Dotted keys and the trees they point into."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflows.errors import SpecError
from airflows.keys import nearest
from airflows.train import MISSING, effective, get_key, join_key, set_key, split_key

parts = st.lists(
    st.text(st.sampled_from("ab.'\"=, []µ"), min_size=1, max_size=6), min_size=1, max_size=4
).map(tuple)
names = st.sampled_from(["a", "b", "c"])
keys = st.lists(names, min_size=1, max_size=4).map(".".join)
trees = st.recursive(
    st.integers() | st.none(), lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8
)
mappings = st.dictionaries(names, trees, max_size=3)


@settings(deadline=None)
@given(parts)
def test_a_joined_key_splits_into_its_parts(given_parts):
    assert split_key(join_key(given_parts)) == given_parts


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("command", ("command",)),
        ("compute.num_accelerators", ("compute", "num_accelerators")),
        ("parameters.'model.name'", ("parameters", "model.name")),
        ('parameters."model.name".x', ("parameters", "model.name", "x")),
        ("parameters.'it''s'", ("parameters", "it's")),
        ("parameters.it's", ("parameters", "it's")),
        ("parameters.'open.x", ("parameters", "'open", "x")),
        ("parameters.''", ("parameters", "")),
    ],
)
def test_a_key_splits_on_dots_outside_quotes(key, expected):
    assert split_key(key) == expected


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b"])
def test_an_empty_part_of_a_key_is_refused(key):
    with pytest.raises(SpecError, match="empty"):
        split_key(key)


def test_positions_in_lists_are_shown_in_brackets():
    assert join_key(("permissions", 0, "level")) == "permissions[0].level"


def test_a_missing_key_is_told_from_a_null():
    tree = {"a": {"b": None}, "c": 1}

    assert get_key(tree, ("a", "b")) is None
    assert get_key(tree, ("a", "x")) is MISSING
    assert get_key(tree, ("c", "d")) is MISSING
    assert get_key(tree, ("x",), default=0) == 0


@pytest.mark.parametrize("strict", [True, False])
def test_missing_and_null_parents_are_made(strict):
    tree = {"a": None}

    set_key(tree, ("a", "b"), 1, strict=strict)
    set_key(tree, ("x", "y", "z"), [2], strict=strict)

    assert tree == {"a": {"b": 1}, "x": {"y": {"z": [2]}}}


@pytest.mark.parametrize(("standing", "words"), [(5, "the number 5"), ([1], "a list"), ("t", "the text 't'")])
def test_a_strict_override_does_not_go_through_a_value(standing, words):
    tree = {"p": {"a": standing}}

    for change in (
        lambda: set_key(tree, ("p", "a", "b"), 1, strict=True),
        lambda: effective(tree, {"p.a.b": 1}),
    ):
        with pytest.raises(SpecError) as caught:
            change()
        assert str(caught.value).startswith(f"p.a.b: p.a.b cannot be set: p.a is {words}, not a mapping.")
        assert tree == {"p": {"a": standing}}


@pytest.mark.parametrize("standing", [5, [1], "text"])
def test_otherwise_what_stands_in_the_way_is_replaced_as_ai_runtime_does(standing):
    tree = {"p": {"a": standing}}

    assert effective(tree, {"p.a.b": 1}, strict=False) == {"p": {"a": {"b": 1}}}
    set_key(tree, ("p", "a", "b"), 1, strict=False)
    assert tree == {"p": {"a": {"b": 1}}}


def test_a_mapping_is_replaced_and_not_merged():
    assert effective({"c": {"a": 1, "b": 2}}, {"c": {"a": 3}}) == {"c": {"a": 3}}


def test_later_overrides_see_earlier_ones():
    assert effective({}, {"a": {"x": 1}, "a.y": 2, "a.x": 3}) == {"a": {"x": 3, "y": 2}}


def test_an_overriding_mapping_is_never_changed_by_a_later_override():
    shared = {"x": 1}

    assert effective({}, {"a": shared, "a.y": 2}) == {"a": {"x": 1, "y": 2}}
    assert shared == {"x": 1}


def test_untouched_branches_are_shared_and_touched_ones_are_not():
    tree = {"parameters": {"opt": {"name": "adam"}, "net": {"depth": 2}}, "compute": {"n": 1}}

    result = effective(tree, {"parameters.opt.name": "sgd"})

    assert result["compute"] is tree["compute"]
    assert result["parameters"]["net"] is tree["parameters"]["net"]
    assert tree["parameters"]["opt"] == {"name": "adam"}


@settings(deadline=None)
@given(mappings, st.dictionaries(keys, trees, max_size=4))
def test_effective_is_what_setting_each_key_on_a_deep_copy_gives(tree, overrides):
    before = copy.deepcopy((tree, overrides))
    expected = copy.deepcopy(tree)
    for key, value in overrides.items():
        set_key(expected, split_key(key), copy.deepcopy(value), strict=False)

    assert effective(tree, overrides, strict=False) == expected
    assert (tree, overrides) == before


@pytest.mark.parametrize(
    ("name", "expected"),
    [("num_acelerators", "num_accelerators"), ("TIMEOUT_MINUTES", "timeout_minutes"), ("zzz", None)],
)
def test_the_nearest_name_is_offered_only_when_it_is_near(name, expected):
    assert nearest(name, ["num_accelerators", "timeout_minutes", "command"]) == expected
