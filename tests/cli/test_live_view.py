"""The live view on a real terminal: it is drawn, follows the size, and leaves the terminal as it was."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PATIENCE_S = 60
HIDE, SHOW, ALONE, NOT_ALONE = "\x1b[?25l", "\x1b[?25h", "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, cli, program, *words, env=None, stdout=None, size=(24, 80)):
        self.near, far = pty.openpty()
        self.resize(*size)
        self.shown = ""
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT,TERM,HUP", program, *words],
            cwd=cli.directory,
            env={**cli.env, "TERM": "xterm-256color", "LANG": "C.UTF-8", "CI": "", **(env or {})},
            stdin=far,
            stdout=stdout or far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)

    def resize(self, rows, columns):
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, text):
        """Read until a text appears in what comes from now on."""
        self.shown, before = "", self.shown
        deadline = time.monotonic() + PATIENCE_S
        while text not in ESCAPE.sub("", self.shown):
            assert time.monotonic() < deadline, f"{text!r} did not appear in:\n{self.shown}"
            assert self._read(1.0), f"it ended before {text!r} appeared:\n{self.shown}"
        self.shown = before + self.shown

    def end(self):
        """Read to the end; return the exit status."""
        while self._read(PATIENCE_S):
            pass
        os.close(self.near)
        return self.process.wait(PATIENCE_S)

    def _read(self, patience_s):
        if not select.select([self.near], [], [], patience_s)[0]:
            return True
        try:
            read = os.read(self.near, 1 << 16)
        except OSError:
            return False
        self.shown += read.decode(errors="replace")
        return bool(read)

    def is_as_it_was(self):
        """Whether the cursor is visible and the whole screen is given back."""
        pairs = [(HIDE, SHOW), (ALONE, NOT_ALONE)]
        return all(self.shown.rfind(back) >= self.shown.rfind(taken) for taken, back in pairs)


@pytest.fixture
def terminal(airflows_program):
    """Start a command on a terminal."""
    made = []

    def start(cli, *words, **options):
        made.append(Terminal(cli, airflows_program, *words, **options))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()


@pytest.fixture(scope="module")
def running(shared_cli):
    """A sweep in the background whose trials go on."""
    file = shared_cli.sweep_file("exec sleep 600", limits={"concurrent": 2})
    assert shared_cli("sweep", file, "--detach").status == 0
    return shared_cli


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_watch_gives_the_terminal_back_whichever_signal_ends_it(running, terminal, number):
    watch = terminal(running, "watch", "lr")
    watch.until("pending")
    watch.process.send_signal(number)
    assert watch.end() == 130
    assert ALONE in watch.shown
    assert watch.is_as_it_was()
    # The last picture is still there, after the screen was given back.
    assert "0 of 3 ended" in ESCAPE.sub("", watch.shown.rpartition(NOT_ALONE)[2])


def test_watch_follows_the_size_of_the_terminal(running, terminal):
    watch = terminal(running, "watch", "lr", size=(24, 100))
    watch.until("OVERRIDES")
    watch.resize(9, 40)
    watch.until("trials run")
    watch.resize(30, 100)
    watch.until("OVERRIDES")
    watch.process.send_signal(signal.SIGINT)
    assert watch.end() == 130


def test_a_sweep_is_drawn_below_what_is_printed_and_nothing_of_it_stays(cli, terminal):
    sweep = terminal(cli, "sweep", cli.sweep_file("sleep 1; [ $AIRFLOWS_TRIAL != 1 ]"))
    sweep.until("0 of 3 ended")
    assert sweep.end() == 1
    assert ALONE not in sweep.shown
    assert HIDE in sweep.shown
    assert sweep.is_as_it_was()
    after = ESCAPE.sub("", sweep.shown.rpartition(SHOW)[2])
    assert "failed: 3 of 3 ended" in after
    assert "lr-" in ESCAPE.sub("", sweep.shown)
    assert "cost " not in after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_gives_the_terminal_back(cli, terminal, number):
    sweep = terminal(cli, "sweep", cli.sweep_file("exec sleep 600"))
    sweep.until("running")
    sweep.until("running")
    sweep.process.send_signal(number)
    assert sweep.end() == 130
    assert sweep.is_as_it_was()
    told = ESCAPE.sub("", sweep.shown)
    assert "airflows resume lr-" in told
    assert told.count("Letting go of the sweep") == 1


def test_json_on_a_terminal_is_nothing_but_lines_of_json(running, terminal):
    watch = terminal(running, "watch", "lr", "-o", "json")
    watch.until("}\r\n")
    assert "\x1b" not in watch.shown
    assert json.loads(watch.shown.splitlines()[0])["trials"]["total"] == 3
    watch.process.send_signal(signal.SIGINT)
    watch.end()


def test_a_sweep_in_json_draws_on_stderr_alone(cli, terminal):
    with (cli.directory / "out").open("w+") as out:
        sweep = terminal(cli, "sweep", cli.sweep_file("sleep 1"), "-o", "json", stdout=out)
        sweep.until("of 3 ended")
        assert sweep.end() == 0
        assert json.loads((cli.directory / "out").read_text())["state"] == "succeeded"


@pytest.mark.parametrize(
    "env", [{"TERM": "dumb"}, {"TERM": ""}, {"CI": "true"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_where_nothing_can_be_drawn_there_are_plain_lines(running, terminal, env):
    watch = terminal(running, "watch", "lr", env=env)
    watch.until("of 3 ended")
    watch.process.send_signal(signal.SIGINT)
    watch.end()
    assert HIDE not in watch.shown
    assert re.search(r"^lr-\w+: 0 of 3 ended", ESCAPE.sub("", watch.shown), re.MULTILINE)


@pytest.mark.parametrize(("words", "env"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"})])
def test_without_colour_the_view_is_drawn_in_none(running, terminal, words, env):
    watch = terminal(running, "watch", "lr", *words, env=env)
    watch.until("pending")
    watch.process.send_signal(signal.SIGINT)
    watch.end()
    assert ALONE in watch.shown
    assert not re.search(r"\x1b\[[0-9;]*m", watch.shown)
