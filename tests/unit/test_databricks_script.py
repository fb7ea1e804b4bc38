"""A trial's own script: bash that says what it has of its own and then runs the command."""

import json
import subprocess
import sys

import pytest
import yaml

from airflows.backends.databricks.script import RESUMING, SCRATCH, parameters_in, trial_script


def run(script, cwd, **env):
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_variables_are_what_they_were_however_odd(tmp_path):
    value = "a 'b' \"c\" $HOME `d` ü \\ #\nend"

    shown = run(trial_script('printf %s "$AIRFLOWS_X"', {"AIRFLOWS_X": value}), tmp_path)

    assert "\n".join(shown) == value


@pytest.mark.parametrize("text", ["lr: 0.1\n", "a: 'END_x $HOME `x`'", "x: |\n  END\n  EOF\n"])
def test_parameters_reach_the_command_whole(tmp_path, text):
    script = trial_script('cat "$HYPERPARAMETERS_PATH"', {}, parameters=text)

    shown = "".join(f"{line}\n" for line in run(script, tmp_path))

    assert yaml.safe_load(shown) == yaml.safe_load(text)
    assert yaml.safe_load(parameters_in(script)) == yaml.safe_load(text)


def test_a_script_without_parameters_has_none():
    assert parameters_in(trial_script("true", {})) == ""


def test_the_command_is_strict(tmp_path):
    done = subprocess.run(["bash", "-c", trial_script("false; true", {})], cwd=tmp_path, check=False)

    assert done.returncode != 0


def save(directory, step):
    (directory / f"checkpoint-{step}").mkdir(parents=True)
    (directory / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps({}))


def test_the_newest_checkpoint_is_found_and_told(tmp_path):
    checkpoints = tmp_path / "a dir"
    save(checkpoints, 9)
    save(checkpoints, 10)
    (checkpoints / "checkpoint-11").mkdir()
    script = trial_script('echo "<$AIRFLOWS_RESUME_FROM>"', {"AIRFLOWS_CHECKPOINT_DIR": str(checkpoints)})

    shown = run(script, tmp_path, PATH=f"{sys.exec_prefix}/bin:/usr/bin:/bin")

    assert shown == [f"{RESUMING}{checkpoints}/checkpoint-10", f"<{checkpoints}/checkpoint-10>"]


def test_a_directory_without_checkpoints_is_made_and_nothing_is_resumed(tmp_path):
    checkpoints = tmp_path / "new" / "one"
    script = trial_script('echo "<$AIRFLOWS_RESUME_FROM>"', {"AIRFLOWS_CHECKPOINT_DIR": str(checkpoints)})

    # No Python is needed for that.
    assert run(script, tmp_path) == ["<>"]
    assert checkpoints.is_dir()


def test_what_a_lost_disk_held_is_not_looked_for():
    kept, lost = (
        trial_script("true", {"AIRFLOWS_CHECKPOINT_DIR": f"{root}/lr/0"})
        for root in ("/Volumes/a/b/c", SCRATCH)
    )

    assert "mkdir" in kept
    assert "mkdir" in lost
    assert len(kept) > 5 * len(lost)


def test_a_machine_without_python_runs_the_command_all_the_same(tmp_path):
    save(tmp_path / "c", 1)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "ls", "mkdir"):
        (tools / name).symlink_to(f"/bin/{name}")
    script = trial_script('echo "<$AIRFLOWS_RESUME_FROM>"', {"AIRFLOWS_CHECKPOINT_DIR": str(tmp_path / "c")})

    assert run(script, tmp_path, PATH=str(tools)) == ["<>"]
