"""`list --remote` and `--dry-run` with commands that say what the test wants; real ones are asked in tests/live."""

import os

import pytest

ROWS = [
    "7|0|RUNNING|1700000000|1700000010|N/A|n1|None|old-0a1b2c-b01234567",
    "7|1|PENDING|1700000000|N/A|N/A||Priority|old-0a1b2c-b01234567",
    "8|0|RUNNING|1700000000|1700000010|N/A|n1|None|not-ours",
]


@pytest.fixture
def slurm(cli, tmp_path):
    """Stand-ins for Slurm's commands; what squeue says and how it ends is set."""
    commands = tmp_path / "slurm"
    commands.mkdir()

    def set_queue(out: str, err: str = "", code: int = 0) -> None:
        (commands / "squeue.out").write_text(out)
        (commands / "squeue").write_text(
            f'#!/bin/sh\ncat {commands}/squeue.out\necho "{err}" >&2\nexit {code}\n'
        )

    for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo"):
        (commands / name).write_text("#!/bin/sh\n")
        (commands / name).chmod(0o755)
    set_queue("".join(f"{row}\n" for row in ROWS))
    cli.env["PATH"] = f"{commands}{os.pathsep}{cli.env['PATH']}"
    return set_queue


@pytest.mark.usefixtures("slurm")
def test_runs_of_a_ledger_that_is_gone_are_shown(cli):
    done = cli("list", "--remote", "-o", "json")

    assert done.status == 0
    assert [
        (one["handle"], one["trial"], one["state"], one["detail"]) for one in done.document["remote"]
    ] == [
        ("7_0@old-0a1b2c-b01234567", None, "running", None),
        ("7_1@old-0a1b2c-b01234567", None, "queued", "Slurm says Priority"),
    ]
    assert not cli.home.exists()


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("words", "handles"),
    [
        (["--limit", "1"], ["7_0"]),
        (["--filter", "state=queued"], ["7_1"]),
        (["--filter", "host=n1", "--filter", "name=old-*"], ["7_0"]),
    ],
)
def test_they_are_filtered_as_others_are(cli, words, handles):
    done = cli("list", "--remote", *words, "-o", "json")

    assert [one["handle"].partition("@")[0] for one in done.document["remote"]] == handles


@pytest.mark.usefixtures("slurm")
def test_people_see_a_table(cli):
    done = cli("list", "--remote")

    header, running, waiting = done.out.splitlines()
    assert header.split() == ["RUN", "TRIAL", "STATE", "SINCE", "BACKEND", "SAYS", "HOST", "NAME"]
    assert running.startswith("slurm:7_0  unknown  running")
    assert "Slurm says Priority" in waiting


def test_an_empty_queue_is_said(cli, slurm):
    slurm("")

    assert "Nothing of ours waits or runs there." in cli("list", "--remote").err


def test_a_queue_that_does_not_answer_is_an_error_of_its_own_status(cli, slurm):
    slurm("", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1)

    done = cli("list", "--remote", "-o", "json")

    assert done.status == 3
    assert done.document["remote"] == []
    (silent,) = done.document["unreachable"]
    assert silent["backend"] == "slurm"
    assert "Unable to contact" in silent["why"]


def test_without_slurms_commands_it_says_what_is_missing(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    cli.env["PATH"] = str(tmp_path / "empty")

    done = cli("list", "--remote")

    assert done.status == 0
    assert "slurm: sbatch, squeue, scancel, scontrol not found" in done.err
    assert "No backend here can be asked." in done.err


@pytest.mark.usefixtures("slurm")
def test_a_preview_shows_the_script_and_the_array_file_and_writes_nothing(cli):
    file = cli.sweep_file(limits={"concurrent": 2}, backend={"type": "slurm", "partition": "gpu"})
    done = cli("sweep", file, "--dry-run")

    assert done.status == 0
    assert "#SBATCH --array=0-2%2\n" in done.out
    assert "#SBATCH --partition=gpu\n" in done.out
    (first,) = [line for line in done.out.splitlines() if line.endswith("/0/a0")]
    assert first.split("\t")[0].endswith("-0000-a0")
    assert not cli.home.exists()
