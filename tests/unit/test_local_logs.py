import pytest

from airflows.backends.local import logs
from airflows.backends.local.logs import follow, last_lines


@pytest.fixture
def log(tmp_path):
    return tmp_path / "node_0.log"


def test_a_log_that_is_not_there_has_no_lines(log):
    assert list(last_lines(log, None)) == []
    assert list(follow(log, None, lambda: True)) == []


@pytest.mark.parametrize("block", [1, 7, 1 << 16])
@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("a\nb\nc\n", None, ["a", "b", "c"]),
        ("a\nb\nc\n", 2, ["b", "c"]),
        ("a\nb\nc", 2, ["b", "c"]),
        ("a\nb\nc\n", 3, ["a", "b", "c"]),
        ("a\nb\nc\n", 9, ["a", "b", "c"]),
        ("a\nb\n\n", 2, ["b", ""]),
        ("a\n", 0, []),
        ("", 5, []),
        ("\n\n\n", 2, ["", ""]),
    ],
)
def test_the_last_lines_are_given(log, monkeypatch, block, text, count, expected):
    monkeypatch.setattr(logs, "_BLOCK", block)
    log.write_text(text)

    assert list(last_lines(log, count)) == expected


def test_a_progress_bar_shows_its_last_state_and_bad_bytes_do_not_matter(log):
    log.write_bytes(b" 10%\r 55%\r100%\nwindows\r\n\xff\xfe!\n")

    assert list(last_lines(log, None)) == ["100%", "windows", "\ufffd\ufffd!"]


def test_following_gives_what_comes_and_ends_with_the_writer(log):
    steps = iter(["b\npart", " of c\n", "the end"])
    ended = []

    def write_on(_seconds):
        step = next(steps)
        with log.open("a") as file:
            file.write(step)
        if step == "the end":
            ended.append(True)

    log.write_text("x\na\n")

    assert list(follow(log, 1, lambda: bool(ended), write_on)) == ["a", "b", "part of c", "the end"]


def test_following_waits_for_the_log_to_be_made(log):
    waits = []

    def make(seconds):
        waits.append(seconds)
        log.write_text("first\n")

    assert list(follow(log, None, lambda: len(waits) > 1, make)) == ["first"]


def test_what_was_written_just_before_the_end_is_not_lost(log):
    log.write_text("a\n")

    def end():
        log.write_text("a\nlast words\n")
        return True

    assert list(follow(log, None, end)) == ["a", "last words"]
