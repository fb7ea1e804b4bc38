"""Ways in which real processes end on this machine, what follows each, and the story of it (O20)."""

import os
import signal
from pathlib import Path

import pytest

# By seed. `$PPID` of the command is its preamble: killed, it leaves no exit status, as after a power cut.
COMMANDS = f"""\
saved=$AIRFLOWS_CHECKPOINT_DIR/checkpoint-5
case $(grep seed "$HYPERPARAMETERS_PATH") in
  *1) ulimit -v 300000; exec python -c 'bytearray(400_000_000)' ;;
  *2) exec python -c 'import os; os.kill(os.getpid(), {int(signal.SIGKILL)})' ;;
  *3) exec python -c 'raise ValueError("bad fold")' ;;
  *4) [ -z "$AIRFLOWS_RESUME_FROM" ] || exit 0
      mkdir -p "$saved"; echo '{{"global_step": 5}}' >"$saved/trainer_state.json"
      kill -KILL $PPID; sleep 60 ;;
  *5) exec python -c 'import ctypes; ctypes.string_at(0)' ;;
  *6) [ "$AIRFLOWS_ATTEMPT" = 2 ] || exit $((AIRFLOWS_ATTEMPT + 3)) ;;
esac
"""
ENDS = {
    # seed: (state, attempts, class, what the message says)
    1: ("failed", 1, "out_of_memory", "It ran out of memory. MemoryError; not retried unchanged"),
    2: ("failed", 2, "error", "ended by SIGKILL, exit code 137; not tried again: the same error twice"),
    3: ("failed", 2, "error", "ValueError: bad fold; not tried again: the same error twice without progress"),
    4: ("succeeded", 2, None, ""),
    5: ("failed", 2, "error", "ended by SIGSEGV, exit code 139; not tried again: the same error twice"),
    6: ("succeeded", 3, None, ""),
}


@pytest.fixture(scope="module")
def swept(shared_cli):
    file = shared_cli.sweep_file(
        COMMANDS,
        space={"parameters.seed": list(ENDS)},
        retry={"wait": "0s", "max": 3},
        limits={"concurrent": 3, "identical_failures": 0},
        backend={"type": "local", "slots": 3, "grace": 1},
    )
    shared_cli.ended = shared_cli("sweep", file)
    return shared_cli


@pytest.mark.parametrize("seed", ENDS)
def test_the_class_of_a_real_end_decides_about_the_next_attempt(swept, seed):
    trial = swept("get", f"lr/{seed - 1}", "-o", "json").document
    state, attempts, kind, says = ENDS[seed]

    assert (trial["state"], len(trial["attempts"]), trial["class"]) == (state, attempts, kind)
    assert says in (trial["message"] or "")
    assert "\n" not in (trial["message"] or "")


def test_a_run_that_lost_its_preamble_goes_on_from_its_checkpoint(swept):
    first, second = swept("get", "lr/3", "-o", "json").document["attempts"]

    assert (first["class"], first["exit_code"]) == ("lost", None)
    assert Path(second["resumed_from"]).name == "checkpoint-5"


def test_the_events_tell_a_trials_story(swept):
    story = [line.strip() for line in swept("get", "lr/3").out.splitlines()]
    told = [line.split("  ", 1)[1] for line in story if line[:4].isdigit()]

    assert [line.split(":")[0] for line in told] == [
        "taken up, to be submitted",
        "accepted by the backend",
        f"running on {os.uname().nodename}",
        "ended badly, to be tried again",
        "taken up, to be submitted",
        "accepted by the backend",
        f"running on {os.uname().nodename}",
        "succeeded",
    ]
    assert told[3].startswith("ended badly, to be tried again: The backend no longer knows the run")
    assert any(line.startswith("resumed from") and line.endswith("checkpoint-5") for line in story)


def test_the_sweep_ends_with_each_cause_once(swept):
    assert swept.ended.status == 1
    # Two of them others got over.
    assert "4 failed, 6 causes" in swept.ended.out
    assert swept.ended.out.count("out of memory") == 1
