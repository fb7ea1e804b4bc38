"""The digits example keeps its promises to a sweep: killed, told to end, resumed, it ends the same."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SCRIPT = Path(__file__).parents[2] / "sweeps" / "digits" / "train.py"
PARAMETERS = {"epochs": 60, "hidden_units": 16, "seed": 3}

pytestmark = pytest.mark.slow


class Training:
    """The script's surroundings: what airflows would set for it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.checkpoints = directory / "checkpoints"
        self.checkpoints.mkdir()
        (directory / "hyperparameters.yaml").write_text(yaml.safe_dump(PARAMETERS))
        self.env = os.environ | {
            "HYPERPARAMETERS_PATH": str(directory / "hyperparameters.yaml"),
            "AIRFLOWS_CHECKPOINT_DIR": str(self.checkpoints),
            "MLFLOW_TRACKING_URI": f"sqlite:///{directory}/mlflow.db",
        }

    def start(self, resume_from: str = "") -> subprocess.Popen[str]:
        env = self.env | {"AIRFLOWS_RESUME_FROM": resume_from}
        return subprocess.Popen([sys.executable, SCRIPT], env=env, stdout=subprocess.PIPE, text=True)

    def finish(self, resume_from: str = "") -> list[str]:
        with self.start(resume_from) as process:
            output = process.stdout.read()
        assert process.returncode == 0
        return output.splitlines()

    def interrupt(self, sign: signal.Signals) -> int:
        """Send a signal once the first epoch has ended; return the exit status."""
        with self.start() as process:
            assert process.stdout.readline().startswith("epoch 1:")
            process.send_signal(sign)
            process.communicate()
        return process.returncode

    def newest(self) -> Path:
        return max(self.checkpoints.glob("*.ckpt"), key=lambda path: int(path.stem.rpartition("-")[2]))


@pytest.fixture(scope="module")
def last_epoch(tmp_path_factory):
    """What an uninterrupted run prints last."""
    return Training(tmp_path_factory.mktemp("whole") / "training").finish()[-1]


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_training_ends_with_the_same_metrics(tmp_path, last_epoch, sign):
    training = Training(tmp_path / "training")
    status = training.interrupt(sign)
    assert status == (-signal.SIGKILL if sign == signal.SIGKILL else 128 + signal.SIGTERM)
    newest = training.newest()
    first, *_, last = training.finish(resume_from=str(newest))
    assert str(newest) in first
    assert last == last_epoch
