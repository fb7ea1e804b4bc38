"""What holds for every command: completion, odd locales, and notes."""

import json

import pytest

COMMANDS = [
    "run",
    "sweep",
    "rehearse",
    "resume",
    "list",
    "get",
    "logs",
    "cancel",
    "results",
    "best",
    "watch",
    "stop-check",
    "validate",
    "init",
    "migrate",
    "backends",
]


def test_help_names_every_command_and_hides_our_own(cli):
    told = cli("--help").out
    assert all(f"\n  {name} " in told for name in COMMANDS)
    assert "_drive" not in told


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_debug(cli, command):
    told = cli(command, "--help").out
    for option in ("-o, --output", "--no-color", "--debug"):
        assert option in told


def test_words_are_completed(cli):
    asked = {"_AIRFLOWS_COMPLETE": "complete_bash", "COMP_WORDS": "airflows re", "COMP_CWORD": "1"}
    assert cli(env=asked).out.split() == ["rehearse", "resume", "results"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_locale_breaks_the_output(cli, encoding):
    file = cli.sweep_file(space={"parameters.opt": ["µ=0.1", "日本"]})
    asked = {"PYTHONIOENCODING": encoding}
    document = json.loads(cli("sweep", file, "--dry-run", "-o", "json", env=asked).out)
    assert [point["overrides"]["parameters.opt"] for point in document["points"]] == ["µ=0.1", "日本"]
    assert cli("sweep", file, "--dry-run", env=asked).status == 0


def test_what_a_person_should_know_of_the_place_is_said_once(cli):
    file = cli.sweep_file()
    notes = [line for line in cli("sweep", file).err.splitlines() if line.startswith("note: ")]
    assert notes
    assert len(set(notes)) == len(notes)
    assert "note: " not in cli("sweep", file).err
