import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from airflows.errors import AirflowsError, SpecError
from airflows.launch import Launcher
from airflows.train import effective, load_train, read_train
from airflows.trial import Trial

SWEEP = "demo-7f3a9c"
TRAIN = """
experiment_name: demo
command: |
  python train.py
  echo done
compute: {accelerator_type: GPU_8xH100, num_accelerators: 16}
env_variables: {B: 1.50, A: "x", Z: }
secrets: {TOKEN: nlp/hf-token, API: ops/key}
parameters: {lr: 0.01, tag: "on", nested: {text: "two\\nlines", empty: ""}, layers: [64, 32]}
timeout_minutes: 90
"""


@pytest.fixture
def project(tmp_path):
    path = tmp_path / "project"
    path.mkdir()
    (path / "train.py").write_text("print(1)\n")
    return path


@pytest.fixture
def open_launcher(tmp_path, project):
    def launcher(text=TRAIN, **how):
        (project / "train.yaml").write_text(text)
        defaults = {"tracker_env": {}, "experiment_id": "", "checkpoint": None}
        return Launcher.open(
            sweep=SWEEP,
            base=load_train(project / "train.yaml"),
            backend=SimpleNamespace(root=tmp_path / "root"),
            **(defaults | how),
        )

    return launcher


def with_code(text=TRAIN, extra=""):
    return f"{text}code_source: {{type: snapshot, snapshot: {{root_path: . {extra}}}}}\n"


def trial(number=3, attempt=0):
    return Trial(SWEEP, number, number, 0, attempt=attempt)


def make(launcher, overrides=None, run_id="", **which):
    return launcher.job(trial(**which), effective(launcher.base.tree, overrides or {}), run_id)


def read_yaml(path):
    return yaml.safe_load(path.read_text())


def test_the_launch_directory_has_the_files_of_ai_runtime(open_launcher, tmp_path):
    job = make(open_launcher(), {"parameters.lr": 1e-5}, attempt=1)

    assert job.launch_dir == tmp_path / "root" / "runs" / SWEEP / "3" / "a1"
    assert sorted(path.name for path in job.launch_dir.iterdir()) == [
        "command.sh",
        "env_vars.json",
        "hyperparameters.yaml",
        "logs",
        "secret_env_vars.json",
        "training_config.yaml",
    ]
    assert (job.launch_dir / "command.sh").read_text() == "python train.py\necho done\n"
    assert json.loads((job.launch_dir / "env_vars.json").read_text()) == [
        {"name": "A", "value": "x"},
        {"name": "B", "value": "1.50"},
        {"name": "Z", "value": ""},
    ]
    assert json.loads((job.launch_dir / "secret_env_vars.json").read_text()) == [
        {"name": "API", "secret_scope": "ops", "secret_key": "key"},
        {"name": "TOKEN", "secret_scope": "nlp", "secret_key": "hf-token"},
    ]
    written = {path.name: path.read_bytes() for path in job.launch_dir.iterdir() if path.is_file()}
    assert written == job.files


def test_the_written_configuration_is_the_effective_one(open_launcher):
    launcher = open_launcher()
    overrides = {"parameters.lr": 1e-5, "parameters.nested.text": "1e3", "env_variables.B": "on"}
    job = make(launcher, overrides)
    expected = effective(launcher.base.tree, overrides)

    assert read_yaml(job.launch_dir / "hyperparameters.yaml") == expected["parameters"]
    assert read_yaml(job.launch_dir / "training_config.yaml") == expected
    again = read_train((job.launch_dir / "training_config.yaml").read_text(), file="training_config.yaml")
    assert again.tree == expected


@pytest.mark.parametrize(
    "text",
    ["a\n\n  b\n", "\n", " x", "tab\there", "#no", "- a", "é\u2028x", "end\n\n\n", "x" * 300, "a: b", "'\""],
)
def test_parameters_of_every_shape_are_read_back_from_both_files(open_launcher, text):
    value = {"text": text, "list": [text, {"deep": text}], text: 1}
    launcher = open_launcher()
    job = make(launcher, {"parameters.odd": value})

    assert read_yaml(job.launch_dir / "hyperparameters.yaml")["odd"] == value
    assert read_yaml(job.launch_dir / "training_config.yaml")["parameters"]["odd"] == value


def test_files_without_content_are_not_written(open_launcher):
    text = (
        'experiment_name: e\ncommand: "true"\ncompute: {accelerator_type: GPU_1xA10, num_accelerators: 1}\n'
    )
    job = make(open_launcher(text))

    names = sorted(path.name for path in job.launch_dir.iterdir())
    assert names == ["command.sh", "logs", "training_config.yaml"]
    assert "HYPERPARAMETERS_PATH" not in job.env
    assert job.timeout_s is None


def test_the_job_says_what_a_backend_needs(open_launcher, project, tmp_path):
    job = make(open_launcher(), number=12, attempt=2)

    assert job.token == "demo-7f3a9c-0012-a2"
    assert (job.sweep, job.number, job.attempt) == (SWEEP, 12, 2)
    assert (job.nodes, job.accelerators_per_node, job.accelerator_type) == (2, 8, "GPU_8xH100")
    assert job.timeout_s == 5400
    assert job.secrets == {"TOKEN": "nlp/hf-token", "API": "ops/key"}
    assert job.work_dir == project
    assert job.checkpoint_dir == str(tmp_path / "root" / "checkpoints" / SWEEP / "12")
    assert Path(job.checkpoint_dir).is_dir()


def test_compute_may_differ_from_trial_to_trial(open_launcher):
    job = make(open_launcher(), {"compute.num_accelerators": 24})

    assert job.nodes == 3


def test_the_variables_are_the_files_and_ours(open_launcher, tmp_path):
    tracking = {"MLFLOW_TRACKING_URI": "https://kim:hidden@mlflow.example.com"}
    launcher = open_launcher(tracker_env=tracking, experiment_id="7")
    job = make(launcher, {"env_variables.MLFLOW_RUN_ID": "theirs"}, run_id="run-1", attempt=1)

    assert job.env == {
        "A": "x",
        "B": "1.50",
        "Z": "",
        "MLFLOW_TRACKING_URI": "https://kim:hidden@mlflow.example.com",
        "MLFLOW_EXPERIMENT_ID": "7",
        "MLFLOW_RUN_ID": "run-1",
        "HYPERPARAMETERS_PATH": str(job.launch_dir / "hyperparameters.yaml"),
        "AIRFLOWS_SWEEP": SWEEP,
        "AIRFLOWS_TRIAL": "3",
        "AIRFLOWS_ATTEMPT": "1",
        "AIRFLOWS_CHECKPOINT_DIR": str(tmp_path / "root" / "checkpoints" / SWEEP / "3"),
    }
    written = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert not [path for path in written if "hidden" in path.read_text()]


def test_without_tracking_there_are_no_variables_of_mlflow(open_launcher):
    assert [name for name in make(open_launcher()).env if name.startswith("MLFLOW")] == []


def test_all_attempts_share_one_checkpoint_directory(open_launcher):
    launcher = open_launcher()

    first, second = make(launcher, attempt=0), make(launcher, attempt=1)

    assert first.checkpoint_dir == second.checkpoint_dir == launcher.checkpoints(3)[0]
    assert first.launch_dir != second.launch_dir


def test_the_sweep_may_say_where_checkpoints_go_and_what_they_look_like(open_launcher, project, tmp_path):
    for text, expected in (("saved", project / "saved"), (str(tmp_path / "abs"), tmp_path / "abs")):
        launcher = open_launcher(checkpoint=SimpleNamespace(dir=text, pattern="*.bin"))
        job = make(launcher)

        assert launcher.checkpoints(3) == (str(expected / SWEEP / "3"), "*.bin")
        assert (job.checkpoint_dir, job.checkpoint_pattern) == launcher.checkpoints(3)
        assert job.env["AIRFLOWS_CHECKPOINT_DIR"] == job.checkpoint_dir


def test_without_code_a_command_runs_beside_its_file(open_launcher, project):
    job = make(open_launcher())

    assert job.work_dir == project
    assert "CODE_SOURCE_PATH" not in job.env


def test_with_code_a_command_runs_in_its_launch_directory(open_launcher):
    launcher = open_launcher(with_code())
    job = make(launcher)

    assert job.work_dir is None
    assert job.env["CODE_SOURCE_PATH"] == str(launcher.code.path)
    assert (Path(job.env["CODE_SOURCE_PATH"]) / "train.py").read_text() == "print(1)\n"
    assert launcher.notices == ()


def test_the_next_driver_goes_on_with_the_recorded_code(open_launcher, project):
    first = open_launcher(with_code())
    (project / "train.py").write_text("print(2)\n")

    again = open_launcher(with_code(), code=first.code.digest)
    fresh = open_launcher(with_code())

    assert again.code.digest == first.code.digest
    assert fresh.code.digest != first.code.digest


def test_a_recorded_snapshot_that_is_gone_is_said_with_the_way_out(open_launcher, tmp_path):
    first = open_launcher(with_code())
    shutil.rmtree(tmp_path / "root" / "snapshots")

    with pytest.raises(AirflowsError, match="no longer in") as caught:
        open_launcher(with_code(), code=first.code.digest)

    assert f"airflows resume {SWEEP} --failed" in str(caught.value)


def test_trials_may_have_different_code_and_keep_it_over_a_restart(open_launcher, project):
    (project / "other").mkdir()
    (project / "other" / "train.py").write_text("print('other')\n")
    launcher = open_launcher(with_code())
    overrides = {"code_source.snapshot.root_path": "other"}
    job = make(launcher, overrides)
    assert Path(job.env["CODE_SOURCE_PATH"]).name == "other"
    (project / "other" / "train.py").write_text("print('changed')\n")

    again = make(open_launcher(with_code(), code=launcher.code.digest), overrides, number=4)

    assert again.env["CODE_SOURCE_PATH"] == job.env["CODE_SOURCE_PATH"]


def test_corrected_code_starts_all_code_anew(open_launcher, project):
    (project / "other").mkdir()
    (project / "other" / "train.py").write_text("print('other')\n")
    overrides = {"code_source.snapshot.root_path": "other"}
    before = make(open_launcher(with_code()), overrides)
    (project / "other" / "train.py").write_text("print('corrected')\n")
    corrected = open_launcher(with_code())

    after = make(open_launcher(with_code(), code=corrected.code.digest), overrides, attempt=1)

    assert after.env["CODE_SOURCE_PATH"] != before.env["CODE_SOURCE_PATH"]


def test_a_trial_whose_code_is_missing_is_an_error_of_its_file(open_launcher, project):
    with pytest.raises(SpecError, match="does not exist") as caught:
        make(open_launcher(with_code()), {"code_source.snapshot.root_path": "gone"})

    assert caught.value.file == str(project / "train.yaml")


def test_the_state_of_the_repository_lies_beside_the_command(open_launcher):
    launcher = open_launcher(with_code())
    (launcher.code.path.parent / "git_state.json").write_text('{"schema_version": 1}')
    (launcher.code.path.parent / "git_diff.patch").write_text("patch")

    job = make(launcher)
    again = make(launcher)

    assert (job.launch_dir / "git_state.json").read_text() == '{"schema_version": 1}'
    assert (again.launch_dir / "git_diff.patch").read_text() == "patch"
    assert (job.launch_dir / "git_diff.patch").stat().st_nlink == 2


def test_writing_a_launch_directory_again_gives_the_same(open_launcher):
    launcher = open_launcher()
    job = make(launcher)
    inode = (job.launch_dir / "command.sh").stat().st_ino
    (job.launch_dir / "command.sh").write_text(
        "something much longer than the command that belongs here\n" * 9
    )

    again = make(launcher)

    assert again == replace(job, files=again.files)
    assert (job.launch_dir / "command.sh").read_bytes() == job.files["command.sh"]
    assert (job.launch_dir / "command.sh").stat().st_ino == inode


def test_a_disk_that_fills_up_leaves_no_launch_directory(open_launcher, monkeypatch):
    launcher = open_launcher()
    write, calls = os.write, []

    def full_after_two(descriptor, content):
        calls.append(descriptor)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", full_after_two)
    with pytest.raises(AirflowsError, match="No space left on device") as caught:
        make(launcher)

    assert not isinstance(caught.value, SpecError)
    assert "AIRFLOWS_HOME" in str(caught.value)
    assert not (launcher.root / "runs" / SWEEP / "3" / "a0").exists()


def test_a_root_that_cannot_be_written_is_one_plain_error(open_launcher, tmp_path):
    launcher = open_launcher()
    (tmp_path / "root").write_text("a file")

    with pytest.raises(AirflowsError, match="cannot be written"):
        make(launcher)


def test_an_inline_base_starts_from_the_directory_it_is_given(tmp_path, project):
    launcher = Launcher.open(
        sweep=SWEEP,
        base=read_train(with_code(), file="sweep.yaml"),
        backend=SimpleNamespace(root=tmp_path / "root"),
        tracker_env={},
        experiment_id="",
        base_dir=project,
    )

    assert launcher.code.path.name == "project"
