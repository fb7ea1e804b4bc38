"""Several trials in one array element of a real Slurm: each fails, is cancelled and goes on by itself."""

import json
import signal
from collections import Counter

import pytest

pytestmark = pytest.mark.live

COUNTS = 'echo "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" >>"$RUNS"; '
# Makes a checkpoint a step and says where it goes on from; the first attempt comes as far as the third.
TRAINS = """
from=${AIRFLOWS_RESUME_FROM##*-}
echo "from ${from:-0}"
for ((step = ${from:-0} + 1; step <= 6; step++)); do
  (( AIRFLOWS_ATTEMPT || step <= 3 )) || sleep 300
  mkdir -p "$AIRFLOWS_CHECKPOINT_DIR/checkpoint-$step"
  echo "{\\"global_step\\": $step}" >"$AIRFLOWS_CHECKPOINT_DIR/checkpoint-$step/trainer_state.json"
done
"""


def once(count: int) -> Counter:
    return Counter(f"{number}.0" for number in range(count))


def elements(sweeping) -> dict[str, list[int]]:
    """Which trials each array element has run."""
    found: dict[str, list[int]] = {}
    for attempt in sweeping.attempts():
        element, _, _ = attempt.handle.partition("/")
        found.setdefault(element, []).append(attempt.number)
    return found


def test_sixteen_trials_packed_by_four_are_four_elements_and_one_that_fails_is_tried_alone(sweeping):
    command = f'{COUNTS} echo "trial $AIRFLOWS_TRIAL on $CUDA_VISIBLE_DEVICES"; sleep 1; '
    fails = '[ "$AIRFLOWS_TRIAL.$AIRFLOWS_ATTEMPT" != 6.0 ] || exit 3'
    gpus = {"accelerators": {"GPU_1xA10": {"gpus": 4}}}
    sweeping.write(command + fails, 16, pack=4, backend=gpus)

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == once(16) | {"6.1": 1}
    made = elements(sweeping)
    assert sorted(map(len, made.values())) == [1, 4, 4, 4, 4]
    assert [sweeping.log(number, 0) for number in (4, 5, 6, 7)] == [
        f"trial {number} on {number - 4}\n" for number in (4, 5, 6, 7)
    ]
    failed = next(attempt for attempt in sweeping.attempts() if attempt.exit_code)
    assert (failed.number, failed.attempt, failed.exit_code, failed.accelerators) == (6, 0, 3, 0.25)
    gain = json.loads(sweeping.ask("get", "live", "-o", "json").stdout)["packing"]
    assert (gain["used"], gain["alone"], gain["kind"]) == (5, 17, "array elements")


def test_one_that_is_cancelled_ends_alone_and_one_that_waits_does_not_start(sweeping, slurm):
    waits = f"{COUNTS} until [ -e $RUNS.go ]; do sleep 0.1; done"
    sweeping.write(waits, 8, pack=4, limits={"concurrent": 4})
    process = sweeping.start()
    sweeping.until(lambda: len(sweeping.runs()) == 4)
    listed = json.loads(sweeping.ask("list", "--remote", "-o", "json").stdout)["remote"]
    assert sorted(run["trial"].rpartition("/")[2] for run in listed) == list("01234567")

    assert sweeping.ask("cancel", "live/1", "live/6").returncode == 0

    arrays = ",".join(map(str, sweeping.arrays()))
    assert "CANCELLED" not in slurm.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", arrays)
    sweeping.runs_file.with_name("runs.txt.go").touch()
    code, document = sweeping.end(process)
    states = {attempt.number: attempt.state for attempt in sweeping.attempts()}
    assert states == {n: "cancelled" if n in {1, 6} else "succeeded" for n in range(8)}
    assert sweeping.runs() == once(8) - Counter(["6.0"])
    assert (code, document["trials"]["cancelled"]) == (0, 2)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        # The batch shell is killed, as with its node; and what Slurm sends before the time limit.
        (["--batch", "--signal=KILL"], "lost"),
        (["--batch", "--signal=USR1"], "timed_out"),
    ],
)
def test_those_of_an_element_that_is_ended_go_on_from_their_checkpoints(sweeping, slurm, how, reason):
    sweeping.write(f"{COUNTS} [ $AIRFLOWS_TRIAL != 0 ] || exit 0; {TRAINS}", 4, pack=4)
    process = sweeping.start()
    saved = "checkpoints/*/*/checkpoint-3/trainer_state.json"
    sweeping.until(lambda: len(list(sweeping.home.glob(saved))) == 3)
    (array,) = sweeping.arrays()
    # Whoever drives on sees it only afterwards.
    process.send_signal(signal.SIGKILL)
    process.communicate()
    slurm.run("scancel", *how, f"{array}_0")
    sweeping.until(lambda: not slurm.run("squeue", "-h").strip())

    code, document = sweeping.drive()

    assert (code, document["state"]) == (0, "succeeded")
    assert sweeping.runs() == once(4) | {f"{number}.1": 1 for number in (1, 2, 3)}
    ended = {(one.number, one.attempt): one.reason for one in sweeping.attempts()}
    assert ended == {(0, 0): "", **{(n, a): "" if a else reason for n in (1, 2, 3) for a in (0, 1)}}
    assert [sweeping.log(number, 1) for number in (1, 2, 3)] == ["from 3\n"] * 3


def test_those_of_an_element_that_a_person_cancels_are_cancelled(sweeping, slurm):
    sweeping.write(f"{COUNTS} [ $AIRFLOWS_TRIAL != 0 ] || exit 0; sleep 300", 3, pack=3)
    process = sweeping.start()
    sweeping.until(lambda: len(sweeping.runs()) == 3 and list(sweeping.home.glob("runs/*/0/a0/exit.json")))
    slurm.run("scancel", *sweeping.arrays())

    code, document = sweeping.end(process)

    assert (code, document["trials"]["succeeded"], document["trials"]["cancelled"]) == (0, 1, 2)
    assert sweeping.runs() == once(3)
