"""docs/json.md and the documents: field by field the same."""

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from airflows.backends.base import Phase, RemoteRun
from airflows.documents import SWEEP_FILTERS, TRIAL_FILTERS, remote_document
from airflows.trial import Handle

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
TOKEN = re.compile(r'\s*(?:"(?P<key>[^"]*)"|(?P<mark>[{}\[\],:])|(?P<word>[^"{}\[\],:]+))')
# Only there when there is something to say, as the page tells in words.
SOMETIMES = {"driver", "files", "others"}


def parsed(text: str) -> Any:
    """Return what a document on the page has: mappings of keys, lists of one element, words as text."""
    tokens = [(found.lastgroup, found[found.lastgroup].strip()) for found in TOKEN.finditer(text)]
    value, rest = _value([token for token in tokens if token[1]])
    assert rest == [], f"{text}: {rest}"
    return value


def _value(tokens: list) -> tuple[Any, list]:
    (kind, text), *rest = tokens
    if text == "{":
        return _mapping(rest)
    if text == "[":
        value, rest = _value(rest)
        return [value], rest[1:]
    value = text
    while rest and rest[0][0] == "word":
        rest = rest[1:]
    assert kind in {"word", "key"}, tokens
    return value, rest


def _mapping(tokens: list) -> tuple[dict[str, Any], list]:
    made = {}
    while tokens[0][1] != "}":
        (_, key), *tokens = tokens
        made[key] = ""
        if tokens[0][1] == ":":
            made[key], tokens = _value(tokens[1:])
        while tokens[0][0] == "word" or tokens[0][1] == ",":
            tokens = tokens[1:]
    return made, tokens[1:]


def row(name: str) -> list[Any]:
    """Return the documents of a row of the table."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    return [parsed(text) for text in re.findall(r"`(\{.*?\})`", line)]


def abbreviation(name: str) -> dict[str, Any]:
    found = re.search(rf"^- {name}(?:, [^=]*)? =[^`]*`(.*?)`", PAGE, re.MULTILINE | re.DOTALL)
    return parsed(found[1])


TRIAL, GROUP = abbreviation("T"), abbreviation("G")
WINNER = GROUP | parsed('{"trial", "mlflow_run_id", "changed"}')
CAUSE = abbreviation("C")
HOST = abbreviation("H")
SHORT = {"T": TRIAL, "G": GROUP, "W": WINNER, "W or null": WINNER, "C": CAUSE, "H": HOST}
SHORT["V"] = abbreviation("V")
COUNTS = abbreviation("`trials`")


def differences(document: Any, page: Any, where: str = "") -> list[str]:
    """Return the keys in which a document and the page differ."""
    page = SHORT.get(page, page) if isinstance(page, str) else page
    if isinstance(page, list) and isinstance(document, list):
        is_plain = isinstance(page[0], str) and page[0] not in SHORT
        assert document or is_plain, f"{where} is empty, so nothing is compared"
        return [text for item in document for text in differences(item, page[0], f"{where}[]")]
    if not isinstance(page, dict) or document is None:
        return []
    assert isinstance(document, dict), f"{where}: {document}"
    return [f"{where}.{key}" for key in (document.keys() ^ page.keys()) - SOMETIMES] + [
        text
        for key in document.keys() & page.keys()
        for text in differences(document[key], page[key], f"{where}.{key}")
    ]


@pytest.fixture(scope="module")
def swept(shared_cli):
    """A sweep of two points with two replicates each, one of which failed; values are put into the ledger."""
    shared_cli.train_file()
    file = shared_cli.sweep_file(
        'echo line; [ "$AIRFLOWS_TRIAL" != 3 ] || { echo "ValueError: no"; exit 1; }',
        space={"parameters.lr": [0.1, 0.2]},
        replicates={"key": "parameters.seed", "values": [0, 1]},
        objective={"metric": "loss", "goal": "minimize"},
    )
    assert shared_cli("sweep", file).status == 1
    with contextlib.closing(sqlite3.connect(shared_cli.home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE trials SET value = number + 1.5, reason = '' WHERE number < 2")
    return shared_cli


def ended(cli):
    return cli("sweep", "sweep.yaml", "-o", "json").document


LIST = row("`list`")[0]["sweeps"][0]
DOCUMENTS = {
    "sweep": (ended, row("`run`, `sweep`, `resume`")[0]),
    "dry run": (["sweep", "sweep.yaml", "--dry-run"], row("… `--dry-run`")[0]),
    "plan": (["plan", "sweep.yaml"], row("`plan`")[0]),
    "add": (["resume", "lr", "--add", "sweep.yaml", "--dry-run"], row("`resume --add --dry-run`")[0]),
    "list": (["list", "--all"], {"sweeps": [LIST]}),
    "runs": (["list", "--all", "--runs"], row("`list`")[1]),
    "get": (["get", "lr"], LIST | row("`get SWEEP`")[0]),
    "get trial": (["get", "lr/3"], TRIAL | row("`get SWEEP/12`")[0]),
    "results": (["results", "lr"], row("`results`")[0]),
    "best": (["best", "lr"], WINNER | row("`best`")[0]),
    "cancel": (["cancel", "lr", "lr/0", "nope"], row("`cancel`")[0]),
    "validate": (["validate", "wrong.yaml", "train.yaml"], row("`validate`")[0]),
    "migrate": (["migrate", "job.sbatch", "--to", "made", "--force"], row("`migrate`")[0]),
    "backends": (["backends"], row("`backends`")[0]),
    "error": (["get", "nope"], row("an error")[0]),
}
# There is nothing of the kind in these examples.
EMPTY = {"waiting", "remote", "unreachable", "avoided"}
SCRIPT = "#!/bin/bash\n#SBATCH --mail-type=END\n#SBATCH --cpus-per-task=2\nmodule load cuda\npython a.py\n"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_page_has_the_keys_of_the_document(swept, name):
    words, page = DOCUMENTS[name]
    swept.write("wrong.yaml", "{experiment_name: x, command: 3}\n")
    swept.write("job.sbatch", SCRIPT)
    document = words(swept) if callable(words) else swept(*words, "-o", "json").document
    if name == "validate":
        # What is right has no errors, and nothing here has warnings.
        document["files"] = document["files"][:1]
        assert document["files"][0].pop("warnings") == []
        page["files"][0].pop("warnings")
    for key in EMPTY & document.keys():
        assert not document[key]
        document[key] = None

    assert differences(document, page) == []
    if "trials" in document:
        trials = document["trials"]
        assert not isinstance(trials, dict) or differences(trials, COUNTS) == []


@pytest.mark.parametrize(
    ("words", "page"),
    [
        (["watch", "lr"], LIST | row("`watch`")[0]),
        (["logs", "lr/0"], row("`logs`")[0]),
    ],
)
def test_the_page_has_the_keys_of_each_line(swept, words, page):
    records = swept(*words, "-o", "json").records
    assert records
    for record in records:
        record.pop("running", None)
        assert differences(record, {key: value for key, value in page.items() if key != "running"}) == []


def test_the_page_has_the_keys_of_what_backends_list():
    run = RemoteRun(Handle("4711_0@b"), "b", "t", Phase.QUEUED)
    assert differences([remote_document("slurm", run, None)], row("`list --remote`")[0]["remote"]) == []


def test_rows_may_be_chosen_by_what_they_have(swept):
    (sweep,) = swept("list", "--all", "-o", "json").document["sweeps"]
    assert set(SWEEP_FILTERS) == sweep.keys() - {"trials", "driver"}
    trial, *_ = swept("list", "--all", "--runs", "-o", "json").document["runs"]
    assert set(TRIAL_FILTERS) == trial.keys() - {"overrides"}
