"""What a person sees: a bar that goes away, colours, a width, and a question before something big."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def on_terminal(cli, airflows_program):
    """Run a command on a terminal of a width; return (status, what was on it)."""

    def go(*words, width=100, typed="", env=None):
        near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        process = subprocess.Popen(
            [airflows_program, *words],
            cwd=cli.directory,
            env={**cli.env, "TERM": "xterm-256color", "CI": "", **(env or {})},
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)
        os.write(near, typed.encode())
        shown = _all_of(near)
        os.close(near)
        return process.wait(timeout=30), shown

    return go


def _all_of(descriptor):
    read = b""
    while True:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:
            return read.decode()
        if not chunk:
            return read.decode()
        read += chunk


def test_a_terminal_gets_a_bar_and_colours(cli, on_terminal):
    status, shown = on_terminal("sweep", cli.sweep_file("sleep 0.3"))
    assert status == 0
    assert "───" in shown or "━━━" in shown
    assert "\x1b[32msucceeded" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")


@pytest.mark.parametrize(("words", "env"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"})])
def test_colours_can_be_switched_off(cli, on_terminal, words, env):
    cli("sweep", cli.sweep_file())
    status, shown = on_terminal("list", "--all", *words, env=env)
    assert status == 0
    assert "\x1b[3" not in shown
    assert "\x1b[1m" not in shown


def test_a_table_is_as_wide_as_the_terminal(cli, on_terminal):
    cli("sweep", cli.sweep_file())
    for width in (40, 90):
        _, shown = on_terminal("list", "--all", width=width)
        lines = ESCAPE.sub("", shown).splitlines()
        assert max(map(len, lines)) <= width


def test_watch_ends_with_the_sweep_on_the_screen(cli, on_terminal):
    cli("sweep", cli.sweep_file())
    status, shown = on_terminal("watch", "lr")
    assert status == 0
    assert "3 of 3 ended" in ESCAPE.sub("", shown)


@pytest.mark.parametrize("typed", ["n\n", "\n", "what\n"])
def test_a_big_sweep_is_asked_about(cli, on_terminal, typed):
    space = {"parameters.seed": {"min": 1, "max": 101, "step": 1}}
    status, shown = on_terminal("sweep", cli.sweep_file(space=space), typed=typed)
    assert status == 1
    assert "Start 101 trials? [y/N]" in shown
    assert not list(cli.home.glob("ledger.db"))


def test_yes_starts_it(cli, on_terminal):
    space = {"parameters.seed": {"min": 1, "max": 101, "step": 1}}
    file = cli.sweep_file(space=space, limits={"trials": 2})
    status, shown = on_terminal("sweep", file, typed="y\n")
    assert "Start 101 trials" in shown
    assert status in {0, 1}
    assert cli.launches() == ["0/a0", "1/a0"]


def test_a_whole_sweep_is_cancelled_only_when_agreed(cli, on_terminal):
    cli("sweep", cli.sweep_file())
    status, shown = on_terminal("cancel", "lr", typed="n\n")
    assert status == 1
    assert "Cancel all trials of lr-" in shown
    assert on_terminal("cancel", "lr", "--yes")[0] == 0
