import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from airflows import codecopies
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
    tracking = {"MLFLOW_TRACKING_URI": "https://mlflow.example.com"}
    secrets = {"MLFLOW_TRACKING_PASSWORD": "hidden"}
    launcher = open_launcher(tracker_env=tracking, tracker_secrets=secrets, experiment_id="7")
    job = make(launcher, {"env_variables.MLFLOW_RUN_ID": "theirs"}, run_id="run-1", attempt=1)

    assert job.env == {
        "A": "x",
        "B": "1.50",
        "Z": "",
        "MLFLOW_TRACKING_URI": "https://mlflow.example.com",
        "MLFLOW_EXPERIMENT_ID": "7",
        "MLFLOW_RUN_ID": "run-1",
        "HYPERPARAMETERS_PATH": str(job.launch_dir / "hyperparameters.yaml"),
        "AIRFLOWS_SWEEP": SWEEP,
        "AIRFLOWS_TRIAL": "3",
        "AIRFLOWS_ATTEMPT": "1",
        "AIRFLOWS_CHECKPOINT_DIR": str(tmp_path / "root" / "checkpoints" / SWEEP / "3"),
    }
    assert job.secret_env == secrets
    assert "hidden" not in repr(job) + repr(launcher)
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
    assert Path(job.env["CODE_SOURCE_PATH"]).name == launcher.code.path.name
    assert (Path(job.env["CODE_SOURCE_PATH"]) / "train.py").read_text() == "print(1)\n"
    assert launcher.notices == ()


def test_the_next_driver_goes_on_with_the_recorded_code(open_launcher, project):
    first = open_launcher(with_code())
    (project / "train.py").write_text("print(2)\n")

    again = open_launcher(with_code(), code=first.code.digest)
    fresh = open_launcher(with_code())

    assert again.code.digest == first.code.digest
    assert fresh.code.digest != first.code.digest


def remove(path):
    """Remove a snapshot, which is read-only."""
    for directory, _, _ in os.walk(path):
        Path(directory).chmod(0o755)
    shutil.rmtree(path)


def change(path, text):
    """Write into a snapshot, as root could, and whoever gives himself the right."""
    path.parent.chmod(0o755)
    if path.exists():
        path.chmod(0o644)
    path.write_text(text)


def test_a_recorded_snapshot_that_is_gone_is_said_with_the_way_out(open_launcher, project, tmp_path):
    first = open_launcher(with_code())
    remove(tmp_path / "root" / "snapshots")
    (project / "train.py").write_text("print(2)\n")

    with pytest.raises(AirflowsError, match=r"no longer in .* the code has changed since") as caught:
        open_launcher(with_code(), code=first.code.digest)

    assert f"airflows resume {SWEEP} --failed" in str(caught.value)


def test_a_recorded_snapshot_that_was_changed_is_never_used(open_launcher, project):
    first = open_launcher(with_code())
    change(first.code.path / "train.py", "print('by a trial')\n")

    again = open_launcher(with_code(), code=first.code.digest)
    assert again.code.digest == first.code.digest
    assert (again.code.path / "train.py").read_text() == "print(1)\n"
    assert "had been changed" in again.notices[0]

    change(first.code.path / "train.py", "print('by a trial')\n")
    (project / "train.py").write_text("print(2)\n")
    with pytest.raises(AirflowsError, match="as it was kept, and the code has changed since"):
        open_launcher(with_code(), code=first.code.digest)


def test_a_recorded_snapshot_that_cannot_be_made_anew_is_said_with_the_reason(
    open_launcher, project, tmp_path
):
    text = f"{TRAIN}code_source: {{type: snapshot, snapshot: {{root_path: src}}}}\n"
    (project / "src").mkdir()
    (project / "src" / "train.py").write_text("print(1)\n")
    first = open_launcher(text)
    remove(tmp_path / "root" / "snapshots")
    shutil.rmtree(project / "src")

    with pytest.raises(AirflowsError, match=r"cannot be made anew: .* does not exist"):
        open_launcher(text, code=first.code.digest)


@pytest.mark.parametrize("name", ["train.py", "new.py", "lib/model.py"])
def test_what_a_trial_writes_beside_its_code_is_not_there_for_the_next(open_launcher, project, name):
    (project / "lib").mkdir()
    (project / "lib" / "model.py").write_text("x = 1\n")
    launcher = open_launcher(with_code())
    before = sorted(path.name for path in launcher.code.path.rglob("*"))
    first = Path(make(launcher, number=0).env["CODE_SOURCE_PATH"])
    (first / name).write_text("changed\n")

    second = Path(make(launcher, number=1).env["CODE_SOURCE_PATH"])
    retried = Path(make(launcher, number=0, attempt=1).env["CODE_SOURCE_PATH"])
    later = open_launcher(with_code())

    for code in (second, retried, later.code.path):
        assert code.name == "project"
        assert sorted(path.name for path in code.rglob("*")) == before
        assert (code / "train.py").read_text() == "print(1)\n"
        assert (code / "lib" / "model.py").read_text() == "x = 1\n"
    assert later.code.path == launcher.code.path
    assert later.notices == ()


def test_an_own_copy_keeps_links_and_rights_and_may_be_written(open_launcher, project):
    (project / "train.py").chmod(0o755)
    (project / "link.py").symlink_to("train.py")
    (project / "folder").symlink_to("nowhere")

    code = Path(make(open_launcher(with_code())).env["CODE_SOURCE_PATH"])

    assert (code / "link.py").readlink() == Path("train.py")
    assert (code / "folder").readlink() == Path("nowhere")
    assert (code / "train.py").stat().st_mode & 0o700 == 0o700
    assert (code / "train.py").stat().st_nlink == 1


def test_a_copy_that_a_run_may_be_using_is_left_alone_and_corrected_code_gets_another(open_launcher, project):
    launcher = open_launcher(with_code())
    first = Path(make(launcher).env["CODE_SOURCE_PATH"])
    (first / "train.py").write_text("in use\n")

    assert make(launcher).env["CODE_SOURCE_PATH"] == str(first)
    assert (first / "train.py").read_text() == "in use\n"
    (project / "train.py").write_text("print(2)\n")
    corrected = Path(make(open_launcher(with_code())).env["CODE_SOURCE_PATH"])
    assert (corrected / "train.py").read_text() == "print(2)\n"


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_BYTES"])
def test_large_code_is_shared(open_launcher, monkeypatch, limit):
    monkeypatch.setattr(codecopies, limit, 0)
    launcher = open_launcher(with_code())
    job = make(launcher)

    assert job.env["CODE_SOURCE_PATH"] == str(launcher.code.path)
    assert not (job.launch_dir / "code").exists()


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS, errno.ENOSPC])
def test_a_file_system_without_quick_copies_is_no_trouble_and_a_full_one_is(
    open_launcher, monkeypatch, number
):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", refuse)
    launcher = open_launcher(with_code())
    if number == errno.ENOSPC:
        with pytest.raises(AirflowsError, match="No space left on device"):
            make(launcher)
        assert not (launcher.root / "runs" / SWEEP / "3" / "a0").exists()
    else:
        code = Path(make(launcher).env["CODE_SOURCE_PATH"])
        assert (code / "train.py").read_text() == "print(1)\n"


def test_trials_may_have_different_code_and_keep_it_over_a_restart(open_launcher, project):
    (project / "other").mkdir()
    (project / "other" / "train.py").write_text("print('other')\n")
    launcher = open_launcher(with_code())
    overrides = {"code_source.snapshot.root_path": "other"}
    job = make(launcher, overrides)
    assert Path(job.env["CODE_SOURCE_PATH"]).name == "other"
    (project / "other" / "train.py").write_text("print('changed')\n")

    again = make(open_launcher(with_code(), code=launcher.code.digest), overrides, number=4)

    assert (Path(again.env["CODE_SOURCE_PATH"]) / "train.py").read_text() == "print('other')\n"


def test_corrected_code_starts_all_code_anew(open_launcher, project):
    (project / "other").mkdir()
    (project / "other" / "train.py").write_text("print('other')\n")
    overrides = {"code_source.snapshot.root_path": "other"}
    before = make(open_launcher(with_code()), overrides)
    (project / "other" / "train.py").write_text("print('corrected')\n")
    corrected = open_launcher(with_code())

    after = make(open_launcher(with_code(), code=corrected.code.digest), overrides, attempt=1)

    assert (Path(before.env["CODE_SOURCE_PATH"]) / "train.py").read_text() == "print('other')\n"
    assert (Path(after.env["CODE_SOURCE_PATH"]) / "train.py").read_text() == "print('corrected')\n"


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
