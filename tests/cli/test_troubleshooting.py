"""Each message of docs/troubleshooting.md is produced for real: by doing what is wrong."""

import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflows.testing.cluster import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
ENTRY = re.compile(r"^### `(.+)`\n<!-- ([a-z-]+) -->\n\n(.+)", re.MULTILINE)
MESSAGES = {name: message for message, name, _ in ENTRY.findall(PAGE)}

Producer = Callable[[Any], str]
PRODUCERS: dict[str, Producer] = {}


def produces(name: str) -> Callable[[Producer], Producer]:
    def note(producer: Producer) -> Producer:
        assert name not in PRODUCERS
        PRODUCERS[name] = producer
        return producer

    return note


def as_pattern(message: str) -> re.Pattern[str]:
    """Return what a message of the page stands for; quotes within it are backticks of the real one."""
    words = [re.escape(part).replace("'", "['`]") for part in " ".join(message.split()).split("…")]
    return re.compile(".+?".join(words))


def test_every_entry_has_its_message_and_a_producer():
    assert len(MESSAGES) == PAGE.count("\n### ")
    assert MESSAGES.keys() ^ PRODUCERS.keys() == set()


@pytest.mark.parametrize("name", MESSAGES)
def test_the_message_is_that_of_the_page(name, in_process):
    told = " ".join(PRODUCERS[name](in_process).split())
    assert as_pattern(MESSAGES[name]).search(told), f"the page: {MESSAGES[name]}\nreally: {told}"


def test_a_message_that_nobody_writes_is_noticed():
    assert not as_pattern("there is no sweep '…'. Try again.").search("there is no sweep 'x'. See the list.")
    assert as_pattern("no value for … (secret …).").search("no value for A (secret b/c).")


def said(done: Any) -> str:
    return str(done.out + done.err)


def dry_run(cli: Any, **fields: Any) -> str:
    return said(cli("sweep", cli.sweep_file(**fields), "--dry-run"))


def ran(cli: Any, name: str, command: str = "true", **fields: Any) -> str:
    """Start a sweep under a name of its own, again or for the first time."""
    file = cli.sweep_file(
        command, file=f"{name}.yaml", name=name, **({"space": {"parameters.lr": [1]}} | fields)
    )
    return said(cli("sweep", file))


# What is wrong with a sweep file.
FILES = {
    "unknown-key": {"spcae": {"parameters.lr": [1]}},
    "unknown-train-key": {"space": {"compute.num_accelerator": [1]}},
    "not-in-base": {"space": {"parameters.lrr": [1]}, "strict": True},
    "no-goal": {"objective": {"metric": "loss"}},
    "continuous": {"space": {"parameters.lr": {"min": 0, "max": 1}}},
    "no-trials": {"search": {"method": "random"}},
    "no-objective": {"search": {"method": "tpe", "trials": 3}},
    "min-max": {"space": {"parameters.lr": {"min": 1, "max": 1}}},
    "swept-name": {"space": {"experiment_name": ["a", "b"]}},
    "trial-cannot-run": {"space": {"compute.accelerator_type": ["GPU_8xH100"]}},
    "duration": {"limits": {"wall_time": "5 parsecs"}},
    "constraint": {"objective": {"metric": "loss", "goal": "min", "constraints": ["latency <"]}},
    "no-base": {"base": "nope.yaml"},
    "unknown-backend": {"backend": "slrum"},
    "unknown-option": {"backend": {"type": "local", "gpu": 1}},
}
for _name, _fields in FILES.items():
    produces(_name)(lambda cli, fields=_fields: dry_run(cli, **fields))

# Files that are no trees.
TEXTS = {
    "not-yaml": "name: lr\nspace: [1, 2\n",
    "key-twice": "name: lr\nname: other\n",
    "doubtful-scalar": "name: lr\nbase: train.yaml\nspace: {parameters.opt: [on, adam]}\n",
}
for _name, _text in TEXTS.items():
    produces(_name)(lambda cli, text=_text: said(cli("validate", cli.write("wrong.yaml", text))))

# Commands on a sweep that has run: `lr`, without an objective.
WORDS = {
    "unknown-command-option": ["sweep", "sweep.yaml", "--overide", "a=1"],
    "unknown-sweep": ["get", "nope"],
    "unknown-trial": ["get", "lr/99"],
    "unknown-attempt": ["get", "lr/0.7"],
    "unknown-handle": ["get", "slurm:99"],
    "no-objective-no-winner": ["best", "lr"],
    "class-alone": ["resume", "lr", "--class", "out_of_memory"],
    "filter": ["list", "--filter", "colour=red"],
    "no-replicates": ["resume", "lr", "--replicates", "1"],
    "another-sweep": ["resume", "lr", "--set", "space={parameters.lr: [7]}"],
    "not-lost": ["resume", "lr", "--rebuild"],
}
for _name, _words in WORDS.items():
    produces(_name)(lambda cli, words=_words: ran(cli, "lr") and said(cli(*words)))


def based(cli: Any, **fields: Any) -> dict[str, Any]:
    """Return a base for a sweep file, with a code directory that is there."""
    cli.write("code/train.py", "")
    code = {"type": "snapshot", "snapshot": {"root_path": "code"}}
    compute = {"accelerator_type": "GPU_1xA10", "num_accelerators": 1}
    return {"experiment_name": "demo", "command": "true", "compute": compute, "code_source": code} | fields


def with_base(cli: Any, name: str, **fields: Any) -> str:
    base = based(cli, parameters={"lr": 1}, **fields)
    return said(cli("sweep", cli.sweep_file(file=f"{name}.yaml", name=name, base=base)))


@produces("no-code")
def _(cli):
    return with_base(cli, "nowhere", code_source={"type": "snapshot", "snapshot": {"root_path": "nowhere"}})


@produces("no-secret")
def _(cli):
    return with_base(cli, "secret", secrets={"HF_TOKEN": "nlp/hf-token"})


@produces("secrets-mode")
def _(cli):
    file = cli.home / "secrets.env"
    file.parent.mkdir(exist_ok=True)
    file.touch(mode=0o644)
    try:
        return with_base(cli, "secret", secrets={"HF_TOKEN": "nlp/hf-token"})
    finally:
        file.unlink()


@produces("nothing-yet")
def _(cli):
    return said(cli("get", "nope", env={"AIRFLOWS_HOME": str(cli.home / "elsewhere")}))


@produces("missing-extra")
def _(cli):
    ran(cli, "lr")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        return said(cli("results", "lr", "--format", "parquet", "--to", "results.parquet"))


# Starting again


@produces("code-changed")
def _(cli):
    with_base(cli, "code")
    cli.write("code/more.py", "")
    try:
        return with_base(cli, "code")
    finally:
        (cli.directory / "code" / "more.py").unlink()


@produces("file-differs")
def _(cli):
    ran(cli, "lr")
    return ran(cli, "lr", limits={"concurrent": 1})


@produces("other-backend")
def _(cli):
    ran(cli, "lr")
    with Cluster() as cluster:
        changed = "backend={type: kubernetes, image: train}"
        return said(cli("sweep", "lr.yaml", "--set", changed, env=known(cluster)))


def known(cluster: Cluster) -> dict[str, str]:
    return {"KUBECONFIG": str(cluster.kubeconfig)}


@produces("driven-elsewhere")
def _(cli):
    gate = cli.directory.parent / "gate"
    os.mkfifo(gate)
    file = cli.sweep_file(f"cat {gate}", file="held.yaml", name="held", space={"parameters.lr": [1]})
    driver = cli.start("sweep", file)
    cli.wait_for(lambda: cli.states().keys() & {"queued", "running"}, "the trial runs")
    try:
        return said(cli("sweep", file))
    finally:
        gate.write_text("")
        driver.communicate()


@produces("ledger-lost")
def _(cli):
    home = cli.home / "lost"
    own = {"AIRFLOWS_HOME": str(home)}
    cli("sweep", cli.sweep_file(file="lost.yaml", name="lost"), env=own)
    for file in home.glob("ledger.db*"):
        file.unlink()
    return said(cli("resume", "lost", env=own))


# Running


@produces("trials-failed")
def _(cli):
    return ran(cli, "failing", "exit 3")


@produces("fail-alike")
def _(cli):
    return ran(cli, "alike", "exit 3", space={"parameters.lr": [1, 2, 3, 4]})


@produces("failed-limit")
def _(cli):
    space = {"parameters.lr": [1, 2, 3, 4]}
    return ran(cli, "limited", "exit 3", space=space, limits={"failed_trials": 1, "concurrent": 1})


@produces("out-of-memory")
def _(cli):
    command = 'echo "torch.cuda.OutOfMemoryError: CUDA out of memory."; exit 1'
    return ran(cli, "memory", command) + said(cli("get", "memory/0"))


# One value, as MLflow's client would log it, and then nothing until it is told to end.
SCRIPT = """
import os, signal, sqlite3
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
row = ("loss", 9, 1, os.environ["MLFLOW_RUN_ID"], 1, 0)
columns = "key, value, timestamp, run_uuid, step, is_nan"
with store:
    for table in ("metrics", "latest_metrics"):
        store.execute(f"INSERT INTO {table} ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
if "WAITS" in os.environ:
    signal.pause()
"""
LOGS = f"\"{sys.executable}\" - <<'END'\n{SCRIPT}END\n"
LOSS = {"metric": "loss", "goal": "minimize"}


@produces("not-seen")
def _(cli):
    return ran(cli, "seen", LOGS, tracking={}, objective=LOSS | {"metric": "val_loss"})


@produces("ranking-uses")
def _(cli):
    return ran(cli, "used", tracking={}, objective=LOSS)


@produces("no-winner")
def _(cli):
    ran(cli, "used", tracking={}, objective=LOSS)
    return said(cli("best", "used"))


@produces("stopped-by-rule")
def _(cli):
    stop = {"method": "threshold", "worse_than": 5}
    command = f"export WAITS=1\n{LOGS}"
    return ran(cli, "ruled", command, tracking={}, objective=LOSS, stop=stop) + said(cli("get", "ruled/0"))


# Places


@produces("no-gpu")
def _(cli):
    return ran(cli, "notes", limits={"concurrent": 1})


@produces("no-code-source")
def _(cli):
    return ran(cli, "notes-too", limits={"concurrent": 1})


def elsewhere(cli: Any, backend: str, **env: str) -> str:
    return said(cli("sweep", cli.sweep_file(name="elsewhere"), "--backend", backend, env=env))


@produces("no-slurm")
def _(cli):
    return elsewhere(cli, "slurm", PATH="/nowhere")


@produces("no-kubeconfig")
def _(cli):
    return elsewhere(cli, "kubernetes", KUBECONFIG="/nowhere/config")


@produces("embedded-store")
def _(cli):
    file = cli.sweep_file(name="store", tracking={}, backend={"type": "kubernetes", "image": "train:1"})
    with Cluster() as cluster:
        return said(cli("sweep", file, env=known(cluster)))


@produces("no-credentials")
def _(cli):
    return elsewhere(cli, "databricks", HOME="/nowhere")


def tracked(cli: Any, uri: str) -> str:
    file = cli.sweep_file(name="tracked", tracking={"uri": uri}, objective=LOSS)
    return said(cli("sweep", file, env={"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}))


@produces("mlflow-away")
def _(cli):
    return tracked(cli, "http://127.0.0.1:9")


@produces("mlflow-files")
def _(cli):
    return tracked(cli, "file:///runs")


@produces("ledger-url")
def _(cli):
    return said(cli("list", env={"AIRFLOWS_LEDGER_URL": "mysql://server/ledger"}))


@produces("ledger-damaged")
def _(cli):
    file = cli.write("damaged.db", "no database, but a text of some length. " * 50)
    return said(cli("list", env={"AIRFLOWS_LEDGER_URL": f"sqlite:///{file}"}))


@produces("ledger-newer")
def _(cli):
    own = {"AIRFLOWS_HOME": str(cli.home / "newer")}
    cli("sweep", cli.sweep_file(name="newer"), env=own)
    with closing(sqlite3.connect(cli.home / "newer" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    return said(cli("list", env=own))
