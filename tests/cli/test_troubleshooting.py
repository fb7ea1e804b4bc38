"""Each message of docs/troubleshooting.md is produced for real: by doing what is wrong."""

import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflows.testing.cluster import Cluster
from airflows.testing.workspace import FakeWorkspace

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
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


WRONG = yaml.safe_load((ROOT / "tests" / "data" / "troubleshooting.yaml").read_text())
for _name, _fields in WRONG["files"].items():
    produces(_name)(lambda cli, fields=_fields: dry_run(cli, **fields))
for _name, _text in WRONG["texts"].items():
    produces(_name)(lambda cli, text=_text: said(cli("validate", cli.write("wrong.yaml", text))))
for _name, _words in WRONG["words"].items():
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


def without(package: str, told: Callable[[], str]) -> str:
    """Return what is said where a package is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        return told()


@produces("missing-extra")
def _(cli):
    ran(cli, "lr")
    words = ["results", "lr", "--format", "parquet", "--to", "results.parquet"]
    return without("pyarrow", lambda: said(cli(*words)))


@produces("missing-optuna")
def _(cli):
    search = {"method": "tpe", "trials": 3}
    return without("optuna", lambda: ran(cli, "learns", search=search, objective=LOSS, tracking={}))


@produces("missing-lightkube")
def _(cli):
    return without("lightkube", lambda: elsewhere(cli, "kubernetes"))


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


def held(cli: Any, name: str) -> tuple[Path, Any]:
    """Return what lets a trial end, and the process that drives it: both wait."""
    gate = cli.directory.parent / name
    os.mkfifo(gate)
    file = cli.sweep_file(f"cat {gate}", file=f"{name}.yaml", name=name, space={"parameters.lr": [1]})
    driver = cli.start("sweep", file)
    cli.wait_for(lambda: "running" in cli.states(), "the trial runs")
    return gate, driver


@produces("driven-elsewhere")
def _(cli):
    gate, driver = held(cli, "held")
    try:
        return said(cli("sweep", "held.yaml"))
    finally:
        gate.write_text("")
        driver.communicate()


@produces("not-the-plan")
def _(cli):
    fields = {"name": "planned", "file": "planned.yaml"}
    cli("plan", cli.sweep_file(**fields), "--out", "planned.json")
    cli.sweep_file(**fields, space={"parameters.lr": [7]})
    return said(cli("sweep", "--plan", "planned.json"))


@produces("let-go")
def _(cli):
    gate, driver = held(cli, "let-go")
    driver.send_signal(signal.SIGINT)
    _, told = driver.communicate()
    gate.write_text("")
    return told


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


@produces("sigkill")
def _(cli):
    return ran(cli, "killed", "kill -9 $$") + said(cli("get", "killed/0"))


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


def clustered(cli: Any, **settings: str) -> str:
    file = cli.sweep_file(name="clustered", backend={"type": "kubernetes", **settings})
    with Cluster() as cluster:
        return said(cli("sweep", file, env=known(cluster)))


@produces("no-image")
def _(cli):
    return clustered(cli)


@produces("no-kueue")
def _(cli):
    return clustered(cli, image="train:1", queue="team")


@produces("bad-token")
def _(cli):
    with FakeWorkspace() as workspace:
        return elsewhere(cli, "databricks", DATABRICKS_HOST=workspace.host, DATABRICKS_TOKEN="wrong")


@produces("workspace-mlflow")
def _(cli):
    file = cli.sweep_file(name="there", backend="databricks", tracking={"uri": "http://127.0.0.1:5000"})
    with FakeWorkspace() as workspace:
        known_there = {"DATABRICKS_HOST": workspace.host, "DATABRICKS_TOKEN": workspace.token}
        return said(cli("sweep", file, env=known_there))


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
