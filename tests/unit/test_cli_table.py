import math
from datetime import UTC

import pytest

from airflows.cli.table import (
    number_text,
    one_line,
    overrides_text,
    short_keys,
    shortened,
    table,
    text_width,
    value_text,
    when,
)
from airflows.cli.terminal import Style

NARROW = Style(width=20)


def test_columns_are_as_wide_as_they_need():
    lines = table(("A", "BB"), [("x", "1"), ("yyy", "22")], Style(), right=frozenset({"BB"}))
    assert lines == ["A    BB", "x     1", "yyy  22"]


def test_the_widest_column_gives_way_on_a_narrow_terminal():
    lines = table(("ID", "TEXT"), [("12345", "a very long sentence that does not fit")], NARROW)
    assert all(text_width(line) <= NARROW.width for line in lines)
    assert lines[1].startswith("12345  ")
    assert lines[1].endswith("…")


def test_on_a_very_narrow_terminal_the_last_columns_are_left_out():
    lines = table(("SWEEP", "STATE", "LAST"), [("lr-7f3a9c", "succeeded", "something")], NARROW)
    assert lines[0].split() == ["SWEEP", "STATE"]
    assert all(text_width(line) <= NARROW.width for line in lines)


def test_a_pipe_cuts_nothing():
    assert table(("A",), [("x" * 500,)], Style())[1] == "x" * 500


def test_a_cell_cannot_move_the_cursor():
    assert one_line("a\x1b[31mb\nc\td") == "a\\x1b[31mb⏎c d"


def test_wide_characters_take_two_columns():
    assert text_width("日本") == 4
    assert shortened("日本語", 5) == "日本…"


def test_colour_is_only_where_it_is_wanted():
    assert Style(color=True).paint("x", "red") == "\x1b[31mx\x1b[0m"
    assert Style().paint("x", "red") == "x"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("adam", "adam"), ("", '""'), (0.1, "0.1"), (True, "true"), ([1, "a"], '[1,"a"]'), (None, "null")],
)
def test_values_are_shown_as_they_are_written(value, shown):
    assert value_text(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.97222222, "0.972222"), (None, "-"), ("NaN", "NaN"), (math.inf, "inf"), (12, "12")]
)
def test_numbers_are_short(value, shown):
    assert number_text(value) == shown


def test_keys_lose_their_prefix_where_nothing_else_has_that_name():
    assert short_keys(["parameters.lr", "compute.num_accelerators"]) == {
        "parameters.lr": "lr",
        "compute.num_accelerators": "compute.num_accelerators",
    }
    assert short_keys(["parameters.command", "command"])["parameters.command"] == "parameters.command"


def test_overrides_are_words():
    assert overrides_text({"parameters.lr": 0.1, "parameters.opt": "sgd"}) == "lr=0.1 opt=sgd"


def test_times_of_documents_are_read():
    assert when("2026-01-31T08:00:00.000Z", UTC) == "2026-01-31 08:00:00"
    assert when(None) == "-"
