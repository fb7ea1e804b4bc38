import errno
import os
import signal
import subprocess
import sys

import pytest

from airflows import runtime


@pytest.fixture(autouse=True)
def outside_a_trial(monkeypatch):
    for name in [
        name for name in os.environ if name.startswith("AIRFLOWS_") or name == "HYPERPARAMETERS_PATH"
    ]:
        monkeypatch.delenv(name)


@pytest.fixture
def trial(monkeypatch, tmp_path):
    (tmp_path / "hyperparameters.yaml").write_text("lr: 1.0e-05\nlayers: [1, 2]\n")
    for name, value in {
        "AIRFLOWS_SWEEP": "digits-lr-7f3a9c",
        "AIRFLOWS_TRIAL": "12",
        "AIRFLOWS_ATTEMPT": "2",
        "AIRFLOWS_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "AIRFLOWS_RESUME_FROM": str(tmp_path / "checkpoints" / "m-3.pt"),
        "HYPERPARAMETERS_PATH": str(tmp_path / "hyperparameters.yaml"),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_trial_knows_what_it_is(trial):
    assert runtime.is_trial()
    assert runtime.trial_id() == "digits-lr-7f3a9c/12"
    assert runtime.attempt() == 2
    assert runtime.checkpoint_dir() == trial / "checkpoints"
    assert runtime.resume_from() == trial / "checkpoints" / "m-3.pt"
    assert runtime.hyperparameters() == {"lr": 1e-5, "layers": [1, 2]}


def test_outside_a_trial_everything_has_a_sensible_nothing():
    assert not runtime.is_trial()
    assert runtime.trial_id() == ""
    assert runtime.attempt() == 0
    assert runtime.checkpoint_dir() is None
    assert runtime.resume_from() is None
    assert runtime.hyperparameters() == {}


@pytest.mark.usefixtures("trial")
def test_a_first_attempt_resumes_from_nothing(monkeypatch):
    monkeypatch.setenv("AIRFLOWS_RESUME_FROM", "")

    assert runtime.resume_from() is None


@pytest.mark.usefixtures("trial")
def test_without_pyyaml_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(RuntimeError, match="pip install pyyaml"):
        runtime.hyperparameters()


def test_importing_it_imports_nothing_outside_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import airflows.runtime; "
        "new = {n.split('.')[0] for n in set(sys.modules) - before}; "
        "print(sorted(n for n in new if n not in sys.stdlib_module_names))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown == "['airflows']\n"


def test_what_is_saved_gets_its_name_when_it_is_whole(trial):
    with runtime.saving("m-4.pt") as path:
        path.write_text("first half, ")
        assert not (trial / "checkpoints" / "m-4.pt").exists()
        assert path.name.startswith(".")
        path.write_text("all of it")

    assert [file.name for file in (trial / "checkpoints").iterdir()] == ["m-4.pt"]
    assert (trial / "checkpoints" / "m-4.pt").read_text() == "all of it"


def test_a_save_that_fails_leaves_what_was_there_before(trial):
    with runtime.saving("m.pt") as path:
        path.write_text("old")

    def save_on_a_full_disk():
        with runtime.saving("m.pt") as path:
            path.write_text("ne")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        save_on_a_full_disk()

    assert [file.name for file in (trial / "checkpoints").iterdir()] == ["m.pt"]
    assert (trial / "checkpoints" / "m.pt").read_text() == "old"


def test_directories_are_saved_and_replaced_as_well(trial):
    for content in ("old", "new"):
        with runtime.saving("checkpoint-5") as path:
            path.mkdir()
            (path / "model.pt").write_text(content)

    assert [file.name for file in (trial / "checkpoints").iterdir()] == ["checkpoint-5"]
    assert (trial / "checkpoints" / "checkpoint-5" / "model.pt").read_text() == "new"


def test_a_signal_is_remembered_and_the_handler_before_it_is_called(monkeypatch):
    called = []
    before = signal.signal(signal.SIGTERM, lambda *_: called.append("before"))
    monkeypatch.setattr(runtime, "_asked", runtime.threading.Event())
    monkeypatch.setattr(runtime, "_installed", runtime.threading.Lock())
    try:
        assert not runtime.should_stop()
        runtime.install_handler()
        signal.raise_signal(signal.SIGTERM)

        assert runtime.should_stop()
        assert called == ["before"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_program_ends_its_own_way_after_the_signal():
    code = (
        "import os, signal, sys, airflows.runtime as trial\n"
        "assert not trial.should_stop()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(trial.STOPPED if trial.should_stop() else 0)\n"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 143
