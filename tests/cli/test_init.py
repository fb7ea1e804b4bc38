"""`airflows init`: a project that runs at once, is resumable, and replaces nothing."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
import yaml

from airflows import checkpoints
from airflows.projects import TEMPLATES, name_for, project_files

ROOT = Path(__file__).parents[2]
FILES = ["flows/sweep.py", "prefect.yaml", "sweep.yaml", "train.py", "train.yaml"]
PARAMETERS = {"learning_rate": 0.01, "hidden_units": 8, "epochs": 4, "seed": 0}


def needs(template: str) -> pytest.MarkDecorator:
    absent = [name for name in TEMPLATES[template] if find_spec(name.removesuffix("-skinny")) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} is not installed")


every_template = pytest.mark.parametrize("template", [pytest.param(t, marks=needs(t)) for t in TEMPLATES])


def run_training(directory: Path, template: str, *, resume_from: str = "", ends_after: str = "") -> str:
    """Run a template's script by itself, asked to end once it prints `ends_after`; return what it printed."""
    script, parameters = directory / "train.py", directory / "parameters.yaml"
    script.write_text(project_files(template, "spirals")["train.py"])
    parameters.write_text(yaml.safe_dump(PARAMETERS))
    (directory / "checkpoints").mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "AIRFLOWS_"))}
    env |= {
        "HYPERPARAMETERS_PATH": str(parameters),
        "AIRFLOWS_CHECKPOINT_DIR": str(directory / "checkpoints"),
        "AIRFLOWS_RESUME_FROM": resume_from,
        "MLFLOW_TRACKING_URI": f"sqlite:///{directory}/mlflow.db",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if ends_after and line.startswith(ends_after):
                process.send_signal(signal.SIGTERM)
                ends_after = ""
    assert process.returncode in {0, 128 + signal.SIGTERM}, "".join(printed)
    return f"{''.join(printed)}exit {process.returncode}"


@every_template
def test_what_a_template_trains_saves_ends_when_asked_and_goes_on(template, tmp_path):
    first = run_training(tmp_path, template, ends_after="epoch 2:")
    found = checkpoints.newest(str(tmp_path / "checkpoints"))

    assert first.endswith("exit 143")
    assert "epoch 4:" not in first
    assert found is not None
    last = max(int(line.split()[1].rstrip(":")) for line in first.splitlines() if line.startswith("epoch "))

    second = run_training(tmp_path, template, resume_from=found.path)
    epochs = [int(line.split()[1].rstrip(":")) for line in second.splitlines() if line.startswith("epoch ")]
    assert second.endswith("exit 0")
    assert epochs == list(range(last + 1, 5))


@needs("torch")
def test_a_new_project_sweeps_to_its_winner(cli):
    made = cli("init", "spirals", "-o", "json")
    assert (
        sorted(Path(path).relative_to("spirals").as_posix() for path in made.document["files"])[3:] == FILES
    )
    cli.directory /= "spirals"
    checked = cli("validate", "train.yaml", "sweep.yaml")
    assert (checked.status, checked.err) == (0, "")

    # One trial, because each takes the seconds that importing PyTorch does.
    smaller = ["--set", "space.parameters.hidden_units=[8]", "--set", "space.parameters.learning_rate=[0.01]"]
    smaller += ["--set", "replicates.values=[0]", "--override", "parameters.epochs=2"]
    done = cli("sweep", "sweep.yaml", "--yes", *smaller)
    assert done.status == 0, done.err
    best = cli("best", "spirals", "-o", "json").document
    assert best["overrides"] == {"parameters.learning_rate": 0.01, "parameters.hidden_units": 8}


def test_what_is_there_is_not_replaced(cli):
    cli.write("train.py", "mine")
    refused = cli("init", "--name", "x")

    assert refused.status == 2
    assert "train.py is there already" in refused.error
    assert [path.name for path in cli.directory.iterdir() if path.name != "home"] == ["train.py"]
    assert cli("init", "--name", "x", "--force").status == 0
    # The same again is no other text.
    assert cli("init", "--name", "x").status == 0


def test_what_cannot_be_written_leaves_nothing(cli):
    cli.write("flows", "a file where a directory should be")
    refused = cli("init")

    assert refused.status != 0
    assert "cannot be written" in refused.error
    assert [path.name for path in cli.directory.iterdir() if path.is_file()] == ["flows"]


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--template", "jax"], "no template 'jax'"), (["--name", "a b"], "cannot be the name")],
)
def test_a_wrong_request_writes_nothing(cli, words, says):
    refused = cli("init", "new", *words)

    assert refused.status == 2
    assert says in refused.error
    assert not (cli.directory / "new").exists()


@pytest.mark.parametrize(
    ("directory", "name"),
    [("my model (2)", "my-model-2"), ("_x", "x"), ("日本", "sweep"), ("", "sweep"), ("a" * 80, "a" * 64)],
)
def test_a_project_is_named_after_its_directory(directory, name):
    assert name_for(directory) == name


@pytest.mark.parametrize("template", TEMPLATES)
def test_editors_find_the_schema_and_it_takes_the_files(template):
    files = project_files(template, "spirals")
    for name in ("train", "sweep"):
        first, _, _ = files[f"{name}.yaml"].partition("\n")
        schema = json.loads(files[first.removeprefix("# yaml-language-server: $schema=")])
        jsonschema.validate(yaml.safe_load(files[f"{name}.yaml"]), schema)
        assert "PROJECT" not in files[f"{name}.yaml"]


@pytest.mark.parametrize("name", ["2024", "007", "1e3", "no", "null", "0x10"])
def test_a_name_that_yaml_would_take_for_something_else_stays_a_name(cli, name):
    assert cli("init", name).status == 0
    cli.directory /= name

    planned = cli("sweep", "sweep.yaml", "--dry-run", "-o", "json")
    assert planned.status == 0, planned.err
    assert yaml.safe_load((cli.directory / "prefect.yaml").read_text())["name"] == name


def test_the_flow_of_a_project_is_that_of_this_repository():
    assert project_files("torch", "x")["flows/sweep.py"] == (ROOT / "flows" / "sweep.py").read_text()


def test_a_gitignore_that_is_there_stays_as_it_is(cli):
    ignored = cli.write("own/.gitignore", "data/\n")

    assert cli("init", "own").status == 0
    assert ignored.read_text() == "data/\n"
