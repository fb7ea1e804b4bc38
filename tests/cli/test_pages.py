"""Every block of README.md and of the pages is right: files load, commands run, Python runs.

What cannot run here is listed below, each with the reason; a block that is neither right nor listed fails,
and so does an entry of a list that no page has any more.
"""

import contextlib
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

import airflows
from airflows.backends.registry import settings_model
from airflows.cli.app import COMMANDS, app_for
from airflows.migrate.wandb import is_wandb
from airflows.spec import SweepSpec
from airflows.sweepfile import load_sweep
from airflows.testing.cluster.settings import Settings as ClusterSettings
from airflows.testing.workspace.settings import Settings as WorkspaceSettings
from airflows.train import TrainConfig, load_train
from airflows.vetting import validate_points

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    number: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for messages and for the lists below."""
        return f"{self.page} {self.language} {self.number}"


def blocks_of(page: str) -> list[Block]:
    """Return a page's fenced blocks; of each language they are counted from 0."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", PAGES[page].read_text(), re.DOTALL | re.MULTILINE)
    counts: dict[str, int] = {}
    made = []
    for indent, language, text in found:
        number = counts[language] = counts.get(language, -1) + 1
        made.append(Block(page, number, language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE)))
    return made


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks(language: str) -> list[Any]:
    return [pytest.param(block, id=block.place) for block in BLOCKS if block.language == language]


# Languages whose blocks are no commands and no files of ours.
LANGUAGES = {
    "": "what a command prints",
    "bash": "commands, or the script that test_migrate_docs.py converts",
    "console": "commands",
    "python": "Python",
    "yaml": "files",
}


def test_blocks_are_of_a_language_that_is_checked():
    assert {block.place for block in BLOCKS if block.language not in LANGUAGES} == set()


# Files


def is_kubernetes(tree: Any) -> bool:
    kubernetes_validate.validate(tree, "1.30", strict=True)
    return True


# Files of others: what reads them.
OTHER_FILES: dict[str, Callable[[Any], object] | str] = {
    "kubernetes.md yaml 1": is_kubernetes,
    "fake-kubernetes.md yaml 0": ClusterSettings.model_validate,
    "fake-workspace.md yaml 0": WorkspaceSettings.model_validate,
    "importing.md yaml 0": lambda tree: is_wandb(yaml.safe_dump(tree)),
    "prefect.md yaml 0": "an automation: tests/live/test_prefect.py gives it to a server",
    "prefect.md yaml 1": "a prefect.yaml for an image and a cluster",
}
TRAIN: dict[str, Any] = {
    "experiment_name": "digits",
    "command": 'python "$CODE_SOURCE_PATH/train.py"',
    "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
    "code_source": {"type": "snapshot", "snapshot": {"root_path": "."}},
    "parameters": {"lr": 0.1, "learning_rate": 0.01, "hidden_units": 16, "seed": 0, "optimizer": "sgd"},
    "env_variables": {"MODEL": "small"},
}


@pytest.mark.parametrize("block", blocks("yaml"))
def test_a_file_is_right(block, tmp_path, clean_env):
    clean_env.chdir(tmp_path)
    tree = yaml.safe_load(block.text)
    if block.place in OTHER_FILES:
        reads = OTHER_FILES[block.place]
        assert isinstance(reads, str) or reads(tree)
    elif tree.keys() <= SweepSpec.model_fields.keys():
        check_sweep(block.text, tree)
    elif tree.keys() <= TrainConfig.model_fields.keys():
        missing = {key: value for key, value in TRAIN.items() if key not in tree}
        write_whole("train.yaml", block.text, missing)
        load_train(Path("train.yaml"))
    else:
        pytest.fail(f"{block.place} is no sweep.yaml and no train.yaml, and OTHER_FILES does not name it")


def check_sweep(text: str, tree: dict[str, Any]) -> None:
    """Load a sweep file, or a part of one made whole, as it stands in the page."""
    whole = {"name": "page", "base": "train.yaml", "objective": {"metric": "loss", "goal": "minimize"}}
    if not tree.keys() & {"space", "include"}:
        whole["space"] = (
            {"parameters.lr": {"min": 0.1, "max": 0.2}} if "search" in tree else {"parameters.lr": [0.1]}
        )
    if "objectives" in tree:
        del whole["objective"]
    if not isinstance(tree.get("base"), dict):
        Path("train.yaml").write_text(yaml.safe_dump(TRAIN))
    missing = {key: value for key, value in whole.items() if key not in tree}
    write_whole("sweep.yaml", text, missing)
    loaded = load_sweep(Path("sweep.yaml"))
    settings_model(loaded.spec.backend["type"]).model_validate(loaded.spec.backend)
    validate_points(loaded)


def write_whole(file: str, text: str, missing: dict[str, Any]) -> None:
    Path(file).write_text(text + (yaml.safe_dump(missing) if missing else ""))


# Commands


@dataclass(frozen=True)
class Line:
    """A command of a page."""

    block: Block
    text: str

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.block.place}: {self.text.split('  #')[0].rstrip()}"


SCRIPTS = {"from-slurm-job-arrays.md bash 0": "a batch script; test_migrate_docs.py converts it"}


def lines_of(block: Block) -> Iterator[Line]:
    """Yield the commands of a block: all lines of bash, those with a prompt of console."""
    if block.place in SCRIPTS:
        return
    for line in block.text.replace("\\\n", " ").splitlines():
        text = line.removeprefix("$ ") if block.language == "bash" or line.startswith("$ ") else ""
        if text.strip() and not text.startswith("#"):
            yield Line(block, text)


LINES = [line for block in BLOCKS if block.language in {"bash", "console"} for line in lines_of(block)]

# Programs that are not ours, and that no test of pages can run.
PROGRAMS = {
    "make": "sets up an environment; .ci/run and tests/live/test_demo.py run it",
    "pip": "asks a registry",
    "source": "changes the reader's shell",
    "export": "changes the reader's shell",
    "prefect": "needs a server; tests/live/test_prefect.py has one",
    "mlflow": "serves pages until it is ended",
    "python": "serves until it is ended, or is the script of another tool",
    "curl": "talks to a server of another terminal",
    "databricks": "logs in",
}
# Our commands that are only parsed: by what they begin with.
PARSED = {
    "airflows sweep sweep.yaml --backend kubernetes": "needs a cluster; tests/contract has a fake one",
    "airflows sweep sweep.yaml --backend databricks": "needs a workspace; tests/contract has a fake one",
    "airflows run -f train.yaml --backend databricks": "needs a workspace; tests/contract has a fake one",
    "airflows backends kubernetes": "exit status 3 without a cluster",
    "airflows backends databricks": "exit status 3 without a workspace",
    "airflows backends slurm": "exit status 3 without a cluster; tests/live has one",
    "airflows migrate finetune.sbatch": "test_migrate_docs.py does",
    "airflows results live": "a sweep on a cluster and in a workspace",
    "airflows get live/": "a trial of it",
    "airflows sweep sweep.yaml --plan ": "the hash of somebody's plan",
    "airflows resume lr --add sweep.yaml": "the sweep of the page, before and after",
    "airflows best digits --register": "these trials log no model; those of test_register.py do",
}


def test_nothing_is_listed_that_no_page_has():
    programs = {words[0] for line in LINES for words in commands_of(line.text)}
    texts = [line.text for line in LINES]
    assert PROGRAMS.keys() - programs == set()
    assert [start for start in PARSED if not any(text.startswith(start) for text in texts)] == []
    assert (SCRIPTS.keys() | OTHER_FILES.keys() | SKETCHES.keys()) - {
        block.place for block in BLOCKS
    } == set()


def commands_of(text: str) -> list[list[str]]:
    """Return the words of each command of a line; settings of variables before them are left out."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&>|;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    made: list[list[str]] = [[]]
    for word in lexer:
        if word in {"&&", ";"}:
            made.append([])
        elif made[-1] or "=" not in word.split("/")[0]:
            made[-1].append(word)
    return [[Path(words[0]).name, *words[1:]] for words in made]


def is_parsed(name: str, words: list[str]) -> None:
    """Let the command line itself read the words, without running anything.

    Raises:
        Exception: what a person would be told.
    """
    group: Any = get_command(app_for([name]))
    command = group.commands[name]
    command.make_context(name, list(words))


@pytest.fixture(scope="module")
def world(in_process):
    """A directory and a home in which what the pages name is there: sweeps that ran, and their files."""
    # What the commands write beside the sweeps is none of their code.
    code = {"type": "snapshot", "snapshot": {"root_path": "code"}}
    in_process.write("train.yaml", TRAIN | {"code_source": code})
    in_process.write("code/train.py", SCRIPT)
    sweep = {
        "name": "digits",
        "base": "train.yaml",
        "space": {"parameters.learning_rate": [0.1, 0.2], "parameters.hidden_units": [16, 32]},
        "objective": {"metric": "val_accuracy", "goal": "maximize"},
    }
    in_process.write("sweep.yaml", sweep)
    done = in_process("sweep", "sweep.yaml")
    assert done.status == 0, done.err
    for name, fields in OTHERS.items():
        in_process.write(f"{name}.yaml", sweep | {"name": name} | fields)
        done = in_process("sweep", f"{name}.yaml")
        assert done.status == 0, done.err
    return in_process


LOSS = {"metric": "loss", "goal": "minimize"}
OTHERS = {
    "asha-demo": {"objective": LOSS},
    "noisy": {"objective": LOSS, "replicates": {"key": "parameters.seed", "values": [0, 1]}},
    "two": {"objectives": [LOSS, {"metric": "latency", "goal": "minimize"}], "objective": None},
    "small": {"objective": LOSS, "pack": 2},
}

# Logs as MLflow's client would, without the second that importing it takes.
SCRIPT = """\
import os, random, sqlite3, yaml
with open(os.environ["HYPERPARAMETERS_PATH"], encoding="utf-8") as file:
    given = yaml.safe_load(file)
random.seed(os.environ["AIRFLOWS_TRIAL"])
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
for step in range(1, 5):
    noise = random.random() / 100
    loss = given["learning_rate"] + 1 / step + noise
    with store:
        for key, value in {"loss": loss, "val_accuracy": 1 / loss, "latency": 1 / given["learning_rate"] + noise}.items():
            row = {"key": key, "value": value, "run": os.environ["MLFLOW_RUN_ID"], "step": step}
            store.execute("DELETE FROM latest_metrics WHERE run_uuid = :run AND key = :key", row)
            for table in ("metrics", "latest_metrics"):
                store.execute(
                    f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
                    " VALUES (:key, :value, :step, :run, :step, 0)",
                    row,
                )
"""


@pytest.mark.parametrize("line", [pytest.param(line, id=line.place) for line in LINES])
def test_a_command_runs(line, world):
    for name, *words in commands_of(line.text):
        if name != "airflows":
            assert name in PROGRAMS, f"{line.place}: neither run nor listed in PROGRAMS"
        elif any(line.text.startswith(start) for start in PARSED):
            is_parsed(words[0], words[1:])
        else:
            asked, target = redirected(words)
            done = world(*asked)
            assert done.status == 0, f"{line.place}\n{done.out}\n{done.err}"
            if target:
                world.write(target, done.out)


def redirected(words: list[str]) -> tuple[list[str], str]:
    """Return the words of a command, and the file that its output goes to."""
    if ">" not in words:
        return words, ""
    at = words.index(">")
    return words[:at], words[at + 1]


def spoken(page: str) -> list[str]:
    """Return the commands of a page's text, those between backticks."""
    text = re.sub(r"^ *```.*?^ *```$", "", PAGES[page].read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`(airflows [a-z][^`]*)`", text)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_and_tables_are_there(page):
    for text in spoken(page):
        for each in text.split("&&"):
            name, *words = each.split(" -- ")[0].replace("airflows ", "", 1).split()
            assert name in COMMANDS, f"{page}: {text}"
            known = {
                option
                for param in get_command(app_for([name])).commands[name].params
                for option in param.opts
            }
            options = {word.split("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
            assert options - known == set(), f"{page}: {text}"


# Python

# Only compiled: they show a shape, or the code of another tool.
SKETCHES = {
    "checkpoints.md python 0": "a training loop with the reader's own load and train",
    "fake-kubernetes.md python 0": "has an ellipsis for the reader's code; tests/contract use all of it",
    "fake-workspace.md python 0": "has an ellipsis for the reader's code; tests/contract use all of it",
    "from-optuna.md python 0": "the study that becomes a sweep",
    "from-ray-tune.md python 0": "the tuner that becomes a sweep",
}


@pytest.mark.parametrize("block", blocks("python"))
def test_python_runs(block, world):
    code = compile(block.text, block.place, "exec")
    if block.place in SKETCHES:
        return
    world.write("sweeps/digits/sweep.yaml", (world.directory / "sweep.yaml").read_text())
    world.write("sweeps/digits/train.yaml", (world.directory / "train.yaml").read_text())
    world.write("sweeps/digits/code/train.py", SCRIPT)
    world.write("hyperparameters.yaml", {"lr": 0.1})
    store = f"sqlite:///{world.home}/mlflow.db"
    given = world.variables(HYPERPARAMETERS_PATH="hyperparameters.yaml", MLFLOW_TRACKING_URI=store)
    with given, contextlib.redirect_stdout(sys.stderr):
        exec(code, {"__name__": "page", "airflows": airflows, "Path": Path})  # noqa: S102 - this is what a reader does
