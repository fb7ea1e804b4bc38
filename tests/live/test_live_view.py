"""The live view in tmux, as a person sees it over ssh: keys, sizes, and what is on the screen."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from airflows.testing.waiting import until

pytestmark = pytest.mark.live

AIRFLOWS = Path(sys.executable).parent / "airflows"
# Logs a value as MLflow's client would, and goes on until it is let go.
TRIAL = """
import os, pathlib, sqlite3, sys, threading, yaml
with open(os.environ["HYPERPARAMETERS_PATH"]) as file:
    lr = yaml.safe_load(file)["lr"]
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
with store:
    for table in ("metrics", "latest_metrics"):
        store.execute(
            f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan) VALUES ('loss', ?, 1, ?, 7, 0)",
            (lr, os.environ["MLFLOW_RUN_ID"]),
        )
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
if lr == 0.3:
    sys.exit("ValueError: lr is too high")
"""


class Tmux:
    """A shell in tmux, on a server of its own."""

    def __init__(self, directory: Path, home: Path) -> None:
        self._socket = ["tmux", "-S", str(directory / "tmux.sock")]
        foreign = ("AIRFLOWS_", "MLFLOW_", "TMUX")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env |= {
            "AIRFLOWS_HOME": str(home),
            "PS1": "$ ",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "CI": "",
        }
        self._go(
            *("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30"),
            *("-c", str(directory), "bash --norc --noprofile"),
            env=env,
        )

    def _go(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [*self._socket, *words], env=env, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout

    def type(self, *keys: str) -> None:
        self._go("send-keys", *keys)

    def run(self, *words: str) -> None:
        self.type(" ".join(["clear;", str(AIRFLOWS), *words, '; echo "status $?"']), "Enter")

    def resize(self, columns: int, rows: int) -> None:
        self._go("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self) -> str:
        return self._go("capture-pane", "-p")

    def shows(self, *texts: str) -> str:
        """Return the screen once all these texts are on it."""
        until(lambda: all(text in self.screen() for text in texts), lambda: f"{texts} on:\n{self.screen()}")
        return self.screen()

    def is_normal(self) -> bool:
        """Whether the cursor is visible and no program has the screen for itself."""
        return self._go("display", "-p", "#{cursor_flag} #{alternate_on}").split() == ["1", "0"]

    def close(self) -> None:
        self._go("kill-server")


@pytest.fixture
def tmux(tmp_path, home):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    (tmp_path / "trial.py").write_text(TRIAL)
    tree = {
        "name": "seen",
        "base": {
            "experiment_name": "seen",
            "command": f"{sys.executable} trial.py",
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"lr": 0.0},
        },
        "space": {"parameters.lr": [0.1, 0.2, 0.3]},
        "objective": {"metric": "loss", "goal": "minimize"},
        "limits": {"concurrent": 3, "accelerator_hours": 100},
        "retry": {"max": 0},
    }
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree))
    made = Tmux(tmp_path, home)
    yield made
    (tmp_path / "go").touch()
    made.close()


def test_a_sweep_and_who_watches_it(tmux, tmp_path):
    tmux.run("sweep", "sweep.yaml", "--yes")
    # The values come from MLflow a few seconds later than the trials themselves.
    shown = tmux.shows("3 running", "OVERRIDES", " 7  ", "lr=0.2")
    assert "of 100 accelerator-hours" in shown

    tmux.resize(50, 20)
    shown = tmux.shows("0 of 3 ended", "3 running")
    until(lambda: tmux.screen().count("cost ") == 1, "one view, however often it is resized")
    assert max(map(len, shown.splitlines())) <= 50
    tmux.type("C-c")
    # The words may be broken over lines here.
    tmux.shows("status 130")
    assert tmux.is_normal()

    tmux.resize(100, 30)
    tmux.run("resume", "seen", "--detach")
    tmux.shows("status 0")
    tmux.run("watch", "seen")
    tmux.shows("3 running", "driver ", "lr=0.3")
    assert not tmux.is_normal()
    tmux.type("C-z")
    tmux.shows("Stopped")
    assert tmux.is_normal()
    tmux.type("fg", "Enter")
    tmux.shows("3 running", "driver ", "lr=0.3")
    assert not tmux.is_normal()
    tmux.resize(60, 11)
    shown = tmux.shows("3 running", "… and 2 more")
    assert len(shown.splitlines()) <= 11
    tmux.resize(100, 30)
    (tmp_path / "go").touch()
    shown = tmux.shows("status 1")
    assert tmux.is_normal()
    assert "100 %  3 of 3 ended" in shown
    assert "best    loss 0.1 (trial 0)  " in shown
    assert "failed  1 x error (first 2.0): " in shown
