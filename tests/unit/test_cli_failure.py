import errno
import json

import pytest

from airflows import errors
from airflows.cli import failure
from airflows.cli.app import run

STATUSES = [
    (errors.SpecError("x"), 2),
    (errors.NotFoundError("x"), 2),
    (errors.ConflictError("x"), 2),
    (errors.MissingExtraError("x"), 2),
    (errors.LeaseHeldError("x", owner="h:1"), 2),
    (errors.BackendUnavailableError("x"), 3),
    (errors.LedgerError("x"), 3),
    (errors.TrackingUnavailableError("x"), 3),
    (OSError(errno.ENOSPC, "No space left on device", "/a"), 3),
    (failure.NoResultError("x"), 1),
    (failure.UserInterruptError(), 130),
    (ValueError("x"), 1),
]


@pytest.mark.parametrize(("error", "status"), STATUSES, ids=lambda value: type(value).__name__)
def test_each_error_has_its_exit_status(error, status, capsys):
    assert failure.report(error, []) == status
    assert capsys.readouterr().out == ""


def test_an_error_is_one_paragraph_on_stderr(capsys):
    error = errors.SpecError("is wrong.", file="a.yaml", line=3, field="space.lr", hint="Fix it.")
    failure.report(error, [])
    assert capsys.readouterr().err == "error: a.yaml:3: space.lr: is wrong. Fix it.\n"


def test_further_errors_of_a_file_are_lines_of_their_own(capsys):
    others = tuple(errors.SpecError(f"no {number}.") for number in range(30))
    failure.report(errors.SpecError("first.", others=others), [])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 12
    assert lines[-1] == "error: … and 20 more"


@pytest.mark.parametrize("words", [["-o", "json"], ["-ojson"], ["--output", "json"], ["--output=json"]])
def test_with_json_an_error_is_one_document_on_stdout(words, capsys):
    failure.report(errors.NotFoundError("there is none."), ["get", "x", *words])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["kind"] == "not_found"
    assert "there is none." in printed.err


@pytest.mark.parametrize("command", ["watch", "logs"])
def test_the_error_of_a_command_that_prints_lines_of_json_is_a_line_too(command, capsys):
    failure.report(failure.UserInterruptError(), [command, "x", "-o", "json"])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["error"]["kind"] == "interrupted"


def test_what_comes_after_two_dashes_is_no_option():
    assert not failure.wants_json(["get", "--", "-o", "json"])


def test_a_full_disk_says_that_nothing_is_lost(capsys):
    failure.report(OSError(errno.ENOSPC, "No space left on device", "/a/b"), [])
    assert capsys.readouterr().err.startswith("error: /a/b: No space left on device. Make room")


@pytest.mark.parametrize(("args", "shown"), [([], False), (["--debug"], True)])
def test_a_traceback_comes_only_with_debug(args, shown, capsys):
    with pytest.raises(ZeroDivisionError) as caught:
        int(1 / 0)
    failure.report(caught.value, args)
    assert ("Traceback" in capsys.readouterr().err) is shown


@pytest.mark.parametrize(
    "words",
    [
        ["lits"],
        ["list", "--no-such"],
        ["list", "--limit", "x"],
        ["get"],
        [],
        ["cancel"],
        ["list", "-o", "yaml"],
    ],
)
def test_wrong_words_are_a_wrong_request(words, capsys):
    assert run(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_wrong_words_are_a_document_too(capsys):
    assert run(["list", "--no-such", "-o", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["kind"] == "usage"
    assert "airflows list --help" in document["error"]["hint"]
