"""`make demo` as a person runs it: to a winner, again to the same one, and killed on the way."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AIRFLOWS = ROOT / ".venv" / "bin" / "airflows"
SWEEP = ["sweep", "sweeps/digits/sweep.yaml", "--yes"]
TRIALS = 27
ENDED_BEFORE_THE_KILL = 5

pytestmark = pytest.mark.live


def make_demo(home: Path) -> str:
    """Run `make demo`; return what it printed."""
    # make hands its own settings to the tests it runs, and they are none of this one's business.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "demo", f"AIRFLOWS_HOME={home}"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "AIRFLOWS_"))
    }
    return kept | {"AIRFLOWS_HOME": str(home)}


def ask(home: Path, *words: str) -> dict:
    """Return the JSON document of a command."""
    command = [AIRFLOWS, *words, "-o", "json"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def launches(home: Path) -> list[str]:
    """Return the attempts that ever ran, as NUMBER/aATTEMPT."""
    return sorted("/".join(path.parts[-3:-1]) for path in home.glob("runs/*/*/a*/exit.json"))


def kill_driver_in_mid_run(home: Path) -> None:
    """Start the sweep and kill its driver once a few trials have ended."""
    output = subprocess.DEVNULL
    driver = subprocess.Popen(
        [AIRFLOWS, *SWEEP], cwd=ROOT, env=environment(home), stdout=output, stderr=output
    )
    while len(launches(home)) < ENDED_BEFORE_THE_KILL:
        with pytest.raises(subprocess.TimeoutExpired):
            driver.wait(timeout=0.1)
    driver.send_signal(signal.SIGKILL)
    driver.wait()


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[Path, str]:
    """The home of a demo that ran, and what it printed."""
    home = tmp_path_factory.mktemp("demo") / "home"
    return home, make_demo(home)


@pytest.fixture(scope="module")
def winner(demo) -> dict:
    return ask(demo[0], "best", "digits")


def test_the_demo_ends_with_a_ranked_table_and_a_winner(demo, winner):
    home, printed = demo
    results = ask(home, "results", "digits")
    assert results["complete"]
    assert len(results["ranked"]) == TRIALS // 3
    assert results["winner"]["overrides"] == winner["overrides"]
    assert winner["mean"] == max(group["mean"] for group in results["ranked"])
    assert winner["mean"] > 0.95
    assert f"{winner['mean']:.3f}" in printed
    assert "mlflow ui" in printed


def test_a_second_demo_attaches_and_runs_nothing(demo, winner):
    home, printed = demo
    before = launches(home)
    again = make_demo(home)
    assert launches(home) == before
    assert len(before) == TRIALS
    assert len(ask(home, "list", "--all")["sweeps"]) == 1
    assert ask(home, "best", "digits") == winner
    assert again.splitlines()[-5:] == printed.splitlines()[-5:]


def test_a_driver_killed_in_mid_run_and_started_again_finds_the_same_winner(tmp_path, winner):
    home = tmp_path / "home"
    kill_driver_in_mid_run(home)
    ended = ask(home, *SWEEP)
    assert ended["state"] == "succeeded"
    assert ended["trials"]["succeeded"] == TRIALS
    assert launches(home) == sorted(f"{number}/a0" for number in range(TRIALS))
    same = ("overrides", "trials", "mean", "sd", "n")
    assert {key: ended["winner"][key] for key in same} == {key: winner[key] for key in same}
