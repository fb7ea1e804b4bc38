"""`airflows sweep`: from a file to a ranked table."""

import json

import pytest

SLEEP = "sleep 60"


def test_a_sweep_runs_every_trial_and_says_so(cli):
    done = cli("sweep", cli.sweep_file())
    assert done.status == 0, done.err
    assert "3 of 3 ended" in done.out
    assert cli.launches() == ["0/a0", "1/a0", "2/a0"]


def test_json_is_one_document_and_nothing_else(cli):
    done = cli("sweep", cli.sweep_file(), "-o", "json")
    document = done.document
    assert document["state"] == "succeeded"
    assert document["trials"] == {
        "total": 3,
        "pending": 0,
        "queued": 0,
        "running": 0,
        "succeeded": 3,
        "failed": 0,
        "stopped": 0,
        "cancelled": 0,
    }
    assert set(document) >= {"sweep", "state", "trials", "winner", "message"}
    assert document["winner"] is None


def test_the_same_file_again_attaches_and_runs_nothing(cli):
    file = cli.sweep_file()
    first = cli("sweep", file, "-o", "json").document
    again = cli("sweep", file, "-o", "json")
    assert again.document == first
    assert "ended already" in again.err
    assert len(cli.launches()) == 3


def test_new_starts_another_sweep(cli):
    file = cli.sweep_file()
    first = cli("sweep", file, "-o", "json").document
    other = cli("sweep", file, "--new", "-o", "json").document
    assert other["sweep"] != first["sweep"]
    assert len(cli.launches()) == 6


def test_override_and_set_change_base_and_sweep(cli):
    done = cli(
        *(
            "sweep",
            cli.sweep_file(),
            "--override",
            "parameters.opt=sgd",
            "--set",
            "space={parameters.lr: [0.5]}",
        ),
        *("-o", "json"),
    )
    trial = cli("get", f"{done.document['sweep']}/0", "-o", "json").document
    assert trial["config"]["parameters"] == {"lr": 0.5, "opt": "sgd", "seed": 0}
    assert trial["overrides"] == {"parameters.lr": 0.5}


def test_a_failing_trial_makes_the_status_1_and_is_explained(cli):
    command = (
        'grep -q "lr: 0.2" "$HYPERPARAMETERS_PATH" && { echo before; echo ValueError: bad lr; exit 3; }; true'
    )
    done = cli("sweep", cli.sweep_file(command))
    assert done.status == 1
    assert "1 of 3 trials failed" in done.out
    assert "ValueError: bad lr" in done.out
    attempt, tail = done.err.partition("/1.0 failed (local:")[::2]
    assert attempt.splitlines()[-1] == cli("list", "--all", "-o", "json").document["sweeps"][0]["sweep"]
    assert "  | before" in tail
    assert "/1/a0/logs/node_0.log" in tail
    assert "next: airflows logs lr-" in tail
    assert "airflows resume lr-" in done.out


def test_identical_failures_stop_the_sweep_and_are_told_once(cli):
    """O19."""
    space = {"parameters.seed": {"min": 1, "max": 100, "step": 1}}
    file = cli.sweep_file("python -c 'import nosuchmodule'", space=space, limits={"concurrent": 4})
    done = cli("sweep", file)
    assert done.status == 1
    assert len(cli.launches()) < 10
    assert done.out.count("No module named 'nosuchmodule'") == 1
    assert "trials to fail all ended alike" in done.out
    document = cli("sweep", file, "-o", "json").document
    assert document["state"] == "failed"
    assert "trials failed" not in document["message"]


def test_after_a_fix_the_rest_of_a_stopped_sweep_runs(cli):
    """O19, its second half."""
    space = {"parameters.seed": {"min": 1, "max": 8, "step": 1}}
    command = f"test -e {cli.directory}/fixed || {{ echo ImportError: no; exit 1; }}"
    file = cli.sweep_file(command, space=space)
    assert cli("sweep", file).status == 1
    cli.write("fixed", "")
    done = cli("resume", "lr", "--failed", "-o", "json")
    assert done.status == 0, done.err
    assert done.document["trials"]["succeeded"] == 8


@pytest.mark.parametrize(("name", "status"), [("local", 0), ("nowhere", 2)])
def test_a_sweep_is_resumed_on_the_backend_that_is_named(cli, name, status):
    backend = {"type": "local", "slots": 2}
    assert cli("sweep", cli.sweep_file(backend=backend)).status == 0
    done = cli("resume", "lr", "--backend", name, "-o", "json")
    assert done.status == status, done.err
    assert cli("get", "lr", "-o", "json").document["spec"]["backend"] == backend


@pytest.mark.parametrize("words", [["-o", "json"], []])
def test_progress_and_notes_go_to_stderr(cli, words):
    done = cli("sweep", cli.sweep_file(), *words)
    assert "started; 3 trials on local" in done.err
    assert "started; 3 trials" not in done.out


def test_without_a_terminal_there_are_no_escape_codes(cli):
    done = cli("sweep", cli.sweep_file("exit 1"), env={"TERM": "xterm-256color"})
    assert "\x1b" not in done.out + done.err


# --dry-run


def test_dry_run_shows_the_batch_script_and_the_array_file(cli):
    file = cli.sweep_file(limits={"concurrent": 2}, backend={"type": "slurm", "partition": "gpu"})
    document = cli("sweep", file, "--dry-run", "-o", "json").document

    files = document["backend"]["files"]
    assert files["script.sh"].startswith("#!/bin/bash\n#SBATCH --job-name=")
    assert f"--array=0-{document['trials'] - 1}%2\n" in files["script.sh"]
    assert "#SBATCH --partition=gpu\n" in files["script.sh"]
    assert len(files["tasks"].splitlines()) == document["trials"]
    assert "#SBATCH --partition=gpu" in cli("sweep", file, "--dry-run").out
    assert not cli.home.exists()


def test_dry_run_writes_nothing(cli):
    file = cli.sweep_file(SLEEP)
    done = cli("sweep", file, "--dry-run")
    assert done.status == 0, done.err
    assert not cli.home.exists()
    assert list(cli.directory.iterdir()) == [file]


def test_dry_run_shows_number_diff_and_cost(cli):
    base = {
        "experiment_name": "demo",
        "command": "true",
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 2},
        "parameters": {"lr": 0.1},
        "timeout_minutes": 30,
        "max_retries": 1,
    }
    file = cli.sweep_file(base=base, retry={}, replicates={"key": "parameters.seed", "values": [0, 1]})
    done = cli("sweep", file, "--dry-run")
    assert "6 trials (3 points x 2 replicates) on local" in done.out
    assert "lr 0.1 -> 0.2, seed 1 (new)" in done.out
    assert "at most 12 accelerator-hours" in done.out


def test_dry_run_shows_a_trial_on_one_line_whatever_its_command(cli):
    space = {"command": ["python a.py\nsync\n", "python b.py\nsync\n"]}
    told = cli("sweep", cli.sweep_file("first\nlast\n", space=space), "--dry-run").out
    assert "  0  command first⏎last⏎ -> python a.py⏎sync⏎" in told.splitlines()


def test_dry_run_as_a_document(cli):
    file = cli.sweep_file(space={"parameters.lr": [0.1, 0.10, 0.2], "parameters.lrr": [1]})
    document = cli("sweep", file, "--dry-run", "-o", "json").document
    assert set(document) >= {
        *("sweep", "trials", "duplicates_dropped", "points", "config", "accelerator_hours_max", "warnings"),
        "backend",
    }
    assert (document["trials"], document["duplicates_dropped"]) == (2, 1)
    assert document["points"][1] == {"number": 1, "overrides": {"parameters.lr": 0.2, "parameters.lrr": 1}}
    assert document["config"]["parameters"]["lr"] == 0.1
    assert any("parameters.lr" in warning for warning in document["warnings"])
    assert document["backend"]["type"] == "local"
    assert document["accelerator_hours_max"] is None


def test_dry_run_names_the_sweep_that_would_be_started(cli):
    file = cli.sweep_file()
    promised = cli("sweep", file, "--dry-run", "-o", "json").document["sweep"]
    assert cli("sweep", file, "-o", "json").document["sweep"] == promised


def test_dry_run_of_a_million_points_lists_a_hundred(cli):
    space = {f"parameters.k{number}": {"min": 1, "max": 10, "step": 1} for number in range(6)}
    document = cli("sweep", cli.sweep_file(space=space), "--dry-run", "-o", "json").document
    assert document["trials"] == 1_000_000
    assert len(document["points"]) == 100


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["sweep", "sweep.yaml", "--dry-run"]])
def test_quick_answers_import_nothing_heavy(cli, words):
    cli.sweep_file()
    loaded = cli(*words, env={"PYTHONPROFILEIMPORTTIME": "1"}).err
    assert "typer" in loaded
    for heavy in (
        "mlflow",
        "sqlalchemy",
        "alembic",
        "rich",
        "scipy",
        "numpy",
        *(["pydantic"] if len(words) == 1 else []),
    ):
        assert f" {heavy}\n" not in loaded, heavy


# --detach


def test_a_detached_sweep_is_in_the_ledger_and_is_driven(cli):
    done = cli(
        "sweep",
        cli.sweep_file(f"while ! test -e {cli.directory}/go; do sleep 0.05; done"),
        "--detach",
        "-o",
        "json",
    )
    assert done.status == 0, done.err
    assert done.document["state"] == "running"
    (row,) = cli("list", "-o", "json").document["sweeps"]
    assert row["driver"]["pid"] == done.document["driver"]["pid"]
    cli.write("go", "")
    watched = cli("watch", "lr")
    assert watched.status == 0, watched.err
    assert cli.states()["succeeded"] == 3
    assert (cli.home / "drivers" / f"{row['sweep']}.log").exists()


def test_the_document_of_a_detached_sweep_that_cannot_start_is_an_error(cli):
    file = cli.sweep_file(SLEEP)
    (cli.home).mkdir()
    (cli.home / "drivers").write_text("in the way")
    done = cli("sweep", file, "--detach", "-o", "json")
    assert done.status == 3
    assert "drivers" in json.loads(done.out)["error"]["message"]


def test_a_preview_is_given_where_a_start_would_be_refused(cli):
    """It may be made on another machine than the one that has the secret."""
    base = {"experiment_name": "demo", "command": "true", "secrets": {"HF_TOKEN": "nlp/hf-token"}}
    base["compute"] = {"accelerator_type": "GPU_1xA10", "num_accelerators": 1}
    file = cli.sweep_file(base={**base, "parameters": {"lr": 1}})
    done = cli("sweep", file, "--dry-run", "-o", "json")
    assert done.status == 0, done.err
    (refused,) = [note for note in done.document["backend"]["notes"] if "would be refused" in note]
    assert "NLP__HF_TOKEN" in refused
    started = cli("sweep", file)
    assert started.status == 2
    assert "NLP__HF_TOKEN" in started.error


def test_a_file_with_another_space_is_another_sweep_and_says_which_is_there(cli):
    first = cli("sweep", cli.sweep_file(), "-o", "json").document["sweep"]
    done = cli("sweep", cli.sweep_file(space={"parameters.lr": [0.1, 0.9]}))

    assert done.status == 0, done.err
    assert f"{first} has the same name and other points" in done.err
    assert "--add FILE" in done.err
