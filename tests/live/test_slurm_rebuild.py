"""A lost ledger rebuilt on a real Slurm: from its queue, its accounts, and the shared disk."""

import json
import signal

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

# Trial 0 fails once, trial 1 for good; trials 2 and 3 run until they are let go, trial 4 still waits then.
COMMAND = """\
echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"
case "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" in
  0.0 | 1.*) echo "ValueError: no luck"; exit 3 ;;
  2.* | 3.*) while [ ! -e "{directory}/go" ]; do sleep 0.1; done ;;
esac
"""


def test_a_lost_ledger_is_rebuilt_and_nothing_runs_twice(sweeping):
    command = COMMAND.format(directory=sweeping.directory)
    sweeping.write(command, 5, limits={"concurrent": 2}, retry={"max": 1, "wait": "0s"})
    process = sweeping.start()
    sweeping.until(lambda: {"2.0", "3.0"} <= sweeping.runs().keys())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for path in sweeping.home.glob("ledger.db*"):
        path.unlink()
    (sweeping.directory / "go").touch()

    done = sweeping.ask("resume", str(sweeping.directory / "sweep.yaml"), "--rebuild", "-o", "json")

    document = json.loads(done.stdout)
    assert (done.returncode, document["state"]) == (1, "failed"), done.stderr
    assert (document["trials"]["succeeded"], document["trials"]["failed"]) == (4, 1)
    once = dict.fromkeys(["0.0", "0.1", "1.0", "1.1", "2.0", "3.0", "4.0"], 1)
    assert sweeping.runs() == once
    attempts = sweeping.attempts()
    assert {f"{each.number}.{each.attempt}" for each in attempts} == once.keys()
    assert [each.exit_code for each in attempts if each.number == 1] == [3, 3]
