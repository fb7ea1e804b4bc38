"""The batch script of an array, as golden files; AIRFLOWS_WRITE_GOLDEN=1 writes them anew."""

import os
from pathlib import Path

import pytest

from airflows.backends.base import Job
from airflows.backends.slurm.batches import Batches, Element, batch_name, tasks_text
from airflows.backends.slurm.parsing import TaskId
from airflows.backends.slurm.script import (
    Paths,
    Shape,
    directives,
    environment_text,
    excluded_by,
    limit_s,
    script,
)
from airflows.backends.slurm.settings import SlurmSettings
from airflows.errors import BackendUnavailableError
from airflows.ids import Token
from airflows.trial import Handle

GOLDEN = Path(__file__).parents[1] / "data" / "slurm" / "scripts"
PATHS = Paths(
    Path("/shared/air flows"),
    Path("/shared/air flows/batches/d-0a1b2c/d-0a1b2c-b01234567"),
    Path("/shared/air flows/preambles/0123456789abcdef"),
    Path("/home/me/.airflows/secrets.env"),
    "/opt/venv/bin/python",
)
SHAPE = Shape(1, 1, "GPU_1xA10", 5400.0, "")
CASES = {
    "plain": (200, SHAPE, {}, None),
    "one": (1, Shape(1, 1, "GPU_1xA10", None, "*.pt"), {"time": "12h", "setup": ["module load cuda"]}, None),
    "throttled": (200, Shape(1, 1, "GPU_1xA10", 60.0, "", throttle=8), {"grace": "45s"}, 4711),
    "everything": (
        3,
        Shape(2, 8, "GPU_8xH100", 90_000.0, ""),
        {
            "partition": "gpu,long",
            "account": "ml",
            "qos": "high",
            "constraint": "a100&nvlink",
            "cpus": 8,
            "memory": "64G",
            "extra": ["--exclusive", "--mail-type=END"],
            "accelerators": {
                "GPU_8xH100": {"gpus": 4, "gpu_type": "h100", "qos": "big", "gpu_style": "gpus-per-node"}
            },
        },
        None,
    ),
    "avoiding": (
        2,
        Shape(1, 1, "GPU_1xA10", 5400.0, "", avoid=("gpu-a07", "n3")),
        {"extra": ["--exclusive", "--exclude=gpu-b[01-03]"]},
        None,
    ),
    "packed": (
        13,
        Shape(1, 8, "GPU_8xH100", 5400.0, "", throttle=20, pack=8),
        {"accelerators": {"GPU_8xH100": {"gpu_type": "h100"}}},
        None,
    ),
    "cpu": (4, SHAPE, {"accelerators": {"GPU_1xA10": {"cpu": True}}}, None),
    "pyxis": (4, Shape(1, 1, "GPU_1xA10", None, "", image="nvcr.io/x/y:1"), {"container": "pyxis"}, None),
    "apptainer": (
        4,
        Shape(1, 1, "GPU_1xA10", None, "", image="nvcr.io/x/y:1"),
        {"container": "apptainer", "container_mounts": ["/data:/data"]},
        None,
    ),
}


def job(number: int = 0, **fields) -> Job:
    usual = {
        "token": Token(f"d-0a1b2c-{number:04d}-a0"),
        "sweep": "d-0a1b2c",
        "number": number,
        "attempt": 0,
        "launch_dir": Path(f"/shared/runs/d-0a1b2c/{number}/a0"),
        "files": {},
        "nodes": 1,
        "accelerators_per_node": 1,
        "accelerator_type": "GPU_1xA10",
        "work_dir": None,
        "env": {},
        "secrets": {},
        "checkpoint_dir": "/shared/checkpoints",
    }
    return Job(**{**usual, **fields})


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_as_it_was(name):
    count, shape, given, after = CASES[name]
    settings = SlurmSettings.model_validate({"type": "slurm", **given})
    lines = directives("d-0a1b2c-b01234567", count, shape, settings, PATHS, after)
    text = script(lines, shape, settings, PATHS)

    path = GOLDEN / f"{name}.sh"
    if os.environ.get("AIRFLOWS_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_an_attempt_is_asked_to_end_so_that_it_has_saved_by_its_time_limit():
    assert (limit_s(None, 30), limit_s(3600, 30), limit_s(60, 50)) == (0, 3570, 30)


def test_variables_reach_the_job_as_they_are_and_secrets_only_by_name():
    made = environment_text(
        job(secrets={"HF_TOKEN": "nlp/hf-token"}, work_dir=Path("/a b")), {"A": "it's $1", "b-c": "d e"}
    )

    assert made.splitlines() == [
        "work_dir='/a b'",
        "export A='it'\"'\"'s $1'",
        "odd+=('b-c=d e')",
        "secret HF_TOKEN NLP__HF_TOKEN",
    ]


def test_a_batch_is_named_for_its_attempts():
    tokens = [job(number).token for number in range(3)]

    assert batch_name(tokens) == batch_name(list(tokens))
    assert batch_name(tokens) != batch_name(tokens[:2])
    assert batch_name(tokens).startswith("d-0a1b2c-b")


def test_a_handle_is_the_element_and_its_batch():
    element = Element(TaskId(4711, 12), "d-0a1b2c-b01234567")

    assert element.to_handle() == "4711_12@d-0a1b2c-b01234567"
    assert Element.of(element.to_handle()) == element


@pytest.mark.parametrize("text", ["4711", "4711_12", "x_1@b", "1:2:boot:host:token:/dir"])
def test_another_backends_handle_is_refused(text):
    with pytest.raises(BackendUnavailableError, match="handle"):
        Element.of(Handle(text))


def test_an_array_file_tells_which_element_runs_which_attempt(tmp_path):
    jobs = [job(number, launch_dir=tmp_path / str(number)) for number in range(3)]
    name = batch_name([one.token for one in jobs])
    Batches(tmp_path).write(name, jobs, "#!/bin/bash\n")

    read = Batches(tmp_path)
    assert read.entry(Element(TaskId(1, 2), name)).token == jobs[2].token
    assert [(n, found[jobs[1].token].index) for n, found in read.holding([jobs[1].token])] == [(name, 1)]
    assert read.job_of(name) is None
    assert (read.directory(name) / "tasks").read_text() == tasks_text(jobs)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partition": 'a"b'}, "one line"),
        ({"extra": ["exclusive"]}, "no option of sbatch"),
        ({"extra": ["--a\n--b"]}, "one line"),
    ],
)
def test_what_would_be_another_directive_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        SlurmSettings.model_validate({"type": "slurm", **given})


@pytest.mark.parametrize(
    ("extra", "nodes"),
    [
        ([], ""),
        (["--exclude=n1,n[3-4]"], "n1,n[3-4]"),
        (["--exclude n1"], "n1"),
        (["--exclud=n1"], "n1"),
        (["-x n1"], "n1"),
        (["-xn1"], "n1"),
        (["-N 2 -x 'n1' # n2"], "n1"),
        (["-x n1", "--exclude=n2"], "n2"),
        (["--exclusive", "--exclusive=user", "--extra-node-info=2"], ""),
        (["--comment='an open quote -x n1"], "n1"),
    ],
)
def test_the_nodes_that_a_user_excludes_are_read_from_further_directives(extra, nodes):
    assert excluded_by(extra) == nodes


def test_a_job_hands_the_hosts_to_avoid_on_to_its_array():
    assert Shape.of(job(avoid=("n3",))).avoid == ("n3",)


def test_the_limit_of_trials_holds_for_packed_ones_too():
    def limited(throttle, pack=8):
        shape = Shape(1, 1, "GPU_1xA10", None, "", throttle=throttle, pack=pack)
        lines = directives("d", 100, shape, SlurmSettings(), PATHS)
        return shape.members, next(line for line in lines if line.startswith("--array"))

    assert limited(0) == (8, "--array=0-99")
    assert limited(24) == (8, "--array=0-99%3")
    assert limited(20) == (8, "--array=0-99%2")
    assert limited(5) == (5, "--array=0-99%1")


def test_an_array_file_of_packs_tells_which_element_runs_which_attempts(tmp_path):
    jobs = [job(number, launch_dir=tmp_path / str(number)) for number in range(5)]
    name = batch_name([one.token for one in jobs], 2)
    Batches(tmp_path).write(name, jobs, "#!/bin/bash\n", 2)

    read = Batches(tmp_path)
    assert read.entry(Element(TaskId(1, 1), name, 1)).token == jobs[3].token
    assert [entry.token for entry in read.row(Element(TaskId(1, 2), name))] == [jobs[4].token]
    assert read.entry(Element(TaskId(1, 2), name, 1)) is None
    assert (read.directory(name) / "packs").read_text() == tasks_text(jobs, 2)
