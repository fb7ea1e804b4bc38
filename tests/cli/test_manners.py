"""What holds for every command: completion, odd locales, and a README that is true."""

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMMANDS = [
    "run",
    "sweep",
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


def blocks(file: str, language: str) -> list[str]:
    """Return the code blocks of a page."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)


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
    assert cli(env=asked).out.split() == ["resume", "results"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_locale_breaks_the_output(cli, encoding):
    file = cli.sweep_file(space={"parameters.opt": ["µ=0.1", "日本"]})
    asked = {"PYTHONIOENCODING": encoding}
    document = json.loads(cli("sweep", file, "--dry-run", "-o", "json", env=asked).out)
    assert [point["overrides"]["parameters.opt"] for point in document["points"]] == ["µ=0.1", "日本"]
    assert cli("sweep", file, "--dry-run", env=asked).status == 0


def test_the_first_sweep_of_the_readme_is_right(cli):
    train, sweep, *_ = blocks("README.md", "yaml")
    cli.write("train.yaml", train)
    cli.write("sweep.yaml", sweep)
    cli.write("train.py", "")
    assert cli("validate", "train.yaml", "sweep.yaml").status == 0
    assert cli("sweep", "sweep.yaml", "--dry-run", "-o", "json").document["trials"] == 27


def test_the_settings_in_the_pages_are_right(cli):
    pages = [block for page in ("README.md", "docs/sweeps.md") for block in blocks(page, "yaml")]
    settings = [
        block
        for block in pages
        if yaml.safe_load(block).keys() <= {"backend", "objective", "limits", "replicates"}
    ]
    assert len(settings) == 3
    for block in settings:
        cli.sweep_file(**yaml.safe_load(block))
        done = cli("sweep", "sweep.yaml", "--dry-run")
        assert done.status == 0, done.err


def test_the_commands_in_the_pages_exist():
    pages = [(ROOT / page).read_text() for page in ("README.md", *map(str, (ROOT / "docs").glob("*.md")))]
    named = {word for page in pages for word in re.findall(r"(?:`|\$ |&& )airflows ([a-z][a-z-]*)", page)}
    assert {"sweep", "migrate"} < named <= set(COMMANDS)


def test_what_a_person_should_know_of_the_place_is_said_once(cli):
    file = cli.sweep_file()
    notes = [line for line in cli("sweep", file).err.splitlines() if line.startswith("note: ")]
    assert notes
    assert len(set(notes)) == len(notes)
    assert "note: " not in cli("sweep", file).err
