"""Several trials in one array element: its script and files, its shell on the node, and what is seen of each."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from airflows.backends.base import Phase
from airflows.backends.measuring import MemoryUse
from airflows.backends.slurm.batches import Batches, Element, batch_name
from airflows.backends.slurm.cancelling import Canceller
from airflows.backends.slurm.commands import Answer
from airflows.backends.slurm.finding import Finder
from airflows.backends.slurm.listing import remote_runs
from airflows.backends.slurm.memory import memory_of
from airflows.backends.slurm.parsing import TaskId
from airflows.backends.slurm.script import Paths, Shape, script
from airflows.backends.slurm.settings import SlurmSettings
from airflows.backends.slurm.tools import install
from airflows.backends.slurm.watching import Watcher
from airflows.ids import Token
from airflows.testing.fake import ManualClock
from airflows.trial import Handle

START = 1_700_000_000.0
BATCH = "d-0a1b2c-b01234567"
PATIENCE_S = 30


def token(number: int) -> Token:
    return Token(f"d-0a1b2c-{number:04d}-a0")


class Queue:
    """Slurm's commands, saying what the test wants."""

    def __init__(self) -> None:
        self.squeue: list[str] = []
        self.sacct: list[str] = []
        self.calls: list[tuple[str, ...]] = []

    def ask(self, *words: str) -> Answer:
        self.calls.append(words)
        out = {"squeue": self.squeue, "sacct": self.sacct}.get(words[0], [])
        return Answer(0, "".join(f"{line}\n" for line in out), "")

    def lists(self, *states: str) -> None:
        self.squeue = [
            f"7|{i}|{state}|{START:.0f}|{START:.0f}|N/A|n1|None|{BATCH}" for i, state in enumerate(states)
        ]

    def cancelled(self) -> list[tuple[str, ...]]:
        return [words[1:] for words in self.calls if words[0] == "scancel"]


class Site:
    """An array of two elements, of which the first runs three trials and the second two."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.queue, self.clock = Queue(), ManualClock(START)
        self.claims = root / "claims"
        self.claims.mkdir()
        self.batches = Batches(root)
        self.batches.directory(BATCH).mkdir(parents=True)
        rows = [[0, 1, 2], [3, 4]]
        text = "".join(
            "\t".join(f"{token(number)}\t{self.launch_dir(number)}" for number in row) + "\n" for row in rows
        )
        (self.batches.directory(BATCH) / "packs").write_text(text)
        for number in range(5):
            self.launch_dir(number).mkdir()
        self.handles = [
            Handle(f"7_{index}/{slot}@{BATCH}") for index, row in enumerate(rows) for slot in range(len(row))
        ]
        self.watcher = Watcher(self.queue, self.batches, self.claims, lambda: True, lambda: 300.0, self.clock)
        self.canceller = Canceller(self.queue, self.batches, self.claims, 40.0, self.clock)

    def launch_dir(self, number: int) -> Path:
        return self.root / str(number)

    def look(self) -> list:
        self.clock.advance(61)
        seen = self.watcher.poll(self.handles)
        return [seen[handle] for handle in self.handles]

    def starts(self, *numbers: int) -> None:
        for number in numbers:
            element = Element.of(self.handles[number])
            (self.claims / f"{token(number)}.0").write_text(f"{element.task} n1 {START}\n")

    def leaves(self, number: int, code: int, word: str = "") -> None:
        left = {"exit_code": code, "word": word, "host": "n1", "began": START, "ended": START + 9}
        (self.launch_dir(number) / "exit.json").write_text(json.dumps(left))

    def cancel(self, *numbers: int) -> None:
        self.canceller.cancel([self.handles[number] for number in numbers])


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


# Names


def test_a_handle_names_the_place_in_the_pack():
    element = Element(TaskId(4711, 12), BATCH, 3)

    assert element.to_handle() == f"4711_12/3@{BATCH}"
    assert Element.of(element.to_handle()) == element


def test_a_batch_is_another_one_when_it_is_packed_otherwise():
    tokens = [token(number) for number in range(4)]

    assert len({batch_name(tokens), batch_name(tokens, 2), batch_name(tokens, 4)}) == 3


def test_each_of_a_pack_is_found_by_its_token(site):
    site.batches.accepted(BATCH, 7, START)
    finder = Finder(site.queue, Batches(site.root), site.claims, lambda: True, site.clock)

    assert finder.find([token(1), token(4)]) == {token(1): site.handles[1], token(4): site.handles[4]}


def test_one_of_a_pack_that_only_its_claim_knows_is_found(site):
    site.starts(4)
    finder = Finder(site.queue, site.batches, site.claims, lambda: False, site.clock)

    assert finder.find([token(3), token(4)]) == {token(4): site.handles[4]}


# What is seen


def test_one_that_has_ended_is_told_while_its_element_goes_on(site):
    site.queue.lists("RUNNING", "PENDING")
    site.leaves(0, 0)
    site.leaves(2, 5)

    seen = site.look()

    assert [one.phase for one in seen] == [
        *(Phase.ENDED, Phase.RUNNING, Phase.ENDED),
        *(Phase.QUEUED, Phase.QUEUED),
    ]
    assert (seen[0].exit_code, seen[2].exit_code) == (0, 5)


@pytest.mark.parametrize("state", ["TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "CANCELLED"])
def test_what_ends_an_element_is_told_of_those_alone_that_it_ended(site, state):
    site.queue.lists(state, "RUNNING")
    site.starts(0, 1, 2)
    site.leaves(0, 0)
    site.leaves(1, 3)

    # The exit file of the third may not be visible yet.
    assert site.look()[2].phase is Phase.UNKNOWN
    seen = site.look()

    assert [(one.exit_code, one.word) for one in seen[:3]] == [(0, ""), (3, ""), (None, state)]


def test_one_that_saved_its_work_when_slurm_ended_the_element_was_ended_by_slurm(site):
    site.queue.lists("PREEMPTED", "RUNNING")
    site.starts(0)
    site.leaves(0, 1, "signalled")

    assert (site.look()[0].exit_code, site.look()[0].word) == (1, "PREEMPTED")


def test_one_that_the_kernel_killed_ran_out_of_memory_if_slurm_says_so_of_the_element(site):
    site.queue.lists("OUT_OF_MEMORY", "RUNNING")
    site.starts(0, 1)
    site.leaves(0, 137)
    site.leaves(1, 1)

    assert [one.word for one in site.look()[:2]] == ["OUT_OF_MEMORY", ""]


@pytest.mark.parametrize("status", ["1:0", "0:9"])
def test_the_exit_status_of_an_element_is_not_taken_for_that_of_one_of_its_pack(site, status):
    site.queue.lists("FAILED", "RUNNING")
    site.queue.sacct = [f"7_0|FAILED|{status}|1|2|3|n1|{BATCH}"]
    site.starts(0, 1)
    site.leaves(0, 1)
    site.look()

    seen = site.look()

    assert [one.exit_code for one in seen[:3]] == [1, None, None]


def test_where_an_element_ended_well_those_that_started_did_too_and_no_others(site):
    site.queue.lists("COMPLETED", "RUNNING")
    site.queue.sacct = [f"7_0|COMPLETED|0:0|1|2|3|n1|{BATCH}"]
    site.starts(0, 1)
    site.look()

    seen = site.look()

    assert [one.exit_code for one in seen[:3]] == [0, 0, None]


def test_only_those_of_a_pack_that_go_on_are_listed(site):
    site.queue.lists("RUNNING", "PENDING")
    site.leaves(1, 0)

    runs = remote_runs(site.queue, site.batches)

    assert [(run.handle, run.token) for run in runs] == [
        (site.handles[number], token(number)) for number in (0, 2, 3, 4)
    ]


# Cancelling


def test_one_that_runs_is_asked_by_a_file_and_its_element_left_alone(site):
    site.queue.lists("RUNNING", "PENDING")
    site.starts(0, 1, 2)

    site.cancel(1)

    assert [number for number in range(5) if (site.launch_dir(number) / "cancelled").exists()] == [1]
    assert site.queue.cancelled() == []
    assert site.look()[1].phase is Phase.RUNNING


def test_one_that_waits_is_kept_from_starting_and_seen_gone_at_once(site):
    site.queue.lists("PENDING", "PENDING")

    site.cancel(1)

    seen = site.look()
    assert (seen[1].phase, seen[1].word, seen[1].started_at) == (Phase.ENDED, "killed", None)
    assert (seen[0].phase, seen[2].phase) == (Phase.QUEUED, Phase.QUEUED)
    assert site.queue.cancelled() == []


def test_an_element_is_taken_out_of_the_queue_with_the_last_of_its_pack(site):
    site.queue.lists("RUNNING", "PENDING")

    site.cancel(3)
    site.cancel(4)

    assert site.queue.cancelled() == [("--state=PENDING", "7_[1]")]


def test_an_element_is_ended_by_slurm_only_when_all_that_is_left_of_it_is_overdue(site):
    site.queue.lists("RUNNING", "RUNNING")
    site.starts(0, 1, 2, 3, 4)
    site.leaves(4, 0)
    site.cancel(0, 3)
    site.clock.advance(60)

    site.cancel(0, 3)

    assert ("7_[1]",) in site.queue.cancelled()
    assert not any("7_[0" in word for words in site.queue.cancelled() for word in words)


def test_one_whose_claim_was_taken_by_a_canceller_that_died_is_seen_gone(site):
    site.queue.lists("PENDING", "PENDING")
    (site.claims / f"{token(0)}.0").write_text(f"7_0 - {START}\n")

    site.cancel(0)

    assert site.look()[0].word == "killed"


def test_only_a_whole_pack_is_withdrawn(site):
    site.canceller.withdraw([site.handles[number] for number in (0, 1, 3, 4)])

    assert site.queue.cancelled() == [("--state=PENDING", "7_[1]")]


def test_a_pack_is_withdrawn_with_all_that_is_left_of_it(site):
    site.queue.lists("PENDING", "PENDING")
    site.cancel(3)

    site.canceller.withdraw([site.handles[4]])

    assert site.queue.cancelled() == [("--state=PENDING", "7_[1]")]


def test_a_pack_is_left_alone_while_nobody_can_see_what_else_is_in_it(site):
    packs = site.batches.directory(BATCH) / "packs"
    text = packs.read_text()
    packs.unlink()
    site.canceller.withdraw([site.handles[3]])
    site.cancel(3, 4)
    assert site.queue.cancelled() == []

    packs.write_text(text)
    site.cancel(3, 4)

    assert site.queue.cancelled() == [("--state=PENDING", "7_[1]")]


def test_those_of_a_waiting_pack_that_is_cancelled_have_run_nowhere(site):
    site.queue.lists("PENDING", "PENDING")
    site.cancel(0, 1, 2)
    site.queue.lists("CANCELLED", "PENDING")

    seen = site.look()

    assert [(one.phase, one.started_at, one.host) for one in seen[:3]] == [(Phase.ENDED, None, "")] * 3
    assert not site.watcher.has_started(token(0))


def test_nothing_is_said_of_the_memory_of_one_in_a_pack(site):
    site.queue.sacct = ["7_0|", "7_0.batch|1024K", "8_0|2M"]
    alone = Handle("8_0@d-0a1b2c-b76543210")

    assert memory_of(site.queue, [*site.handles, alone]) == {alone: MemoryUse(2 * 2**20)}


# On the node


class Node:
    """A directory that a node sees, with an element that runs several trials."""

    def __init__(self, root: Path, commands: list[str], *, pack: int, gpus: int = 0) -> None:
        self.root = root
        settings = SlurmSettings(accelerators={"GPU_8xH100": {"cpu": True} if not gpus else {"gpus": gpus}})
        shape = Shape(1, 8, "GPU_8xH100", None, "", pack=pack)
        paths = Paths(root, root / "batch", root / "tools", root / "secrets.env", "python3")
        for directory in ("claims", "batch"):
            (root / directory).mkdir(parents=True)
        install(root / "tools")
        for number, command in enumerate(commands):
            launch_dir = self.launch_dir(number)
            (launch_dir / "logs").mkdir(parents=True)
            (launch_dir / "command.sh").write_text(command)
            (launch_dir / "environment.sh").write_text(f"work_dir='{launch_dir}'\nexport N={number}\n")
        pairs = [f"{token(number)}\t{self.launch_dir(number)}" for number in range(len(commands))]
        (root / "batch" / "packs").write_text("\t".join(pairs) + "\n")
        (root / "script.sh").write_text(script([], shape, settings, paths))

    def launch_dir(self, number: int) -> Path:
        return self.root / "runs" / str(number)

    def log(self, number: int) -> str:
        path = self.launch_dir(number) / "logs" / "node_0.log"
        return path.read_text() if path.exists() else ""

    def exit(self, number: int) -> dict:
        return json.loads((self.launch_dir(number) / "exit.json").read_text())

    def start(self, **env: str) -> subprocess.Popen:
        slurm = {
            "SLURM_ARRAY_JOB_ID": "7",
            "SLURM_ARRAY_TASK_ID": "0",
            "SLURM_JOB_ID": "7",
            "SLURMD_NODENAME": "n1",
        }
        env = {"PATH": os.environ["PATH"], **slurm, **env}
        return subprocess.Popen(["bash", self.root / "script.sh"], env=env, start_new_session=True)

    def run(self, **env: str) -> int:
        return self.start(**env).wait(PATIENCE_S)

    def until_logged(self, text: str, *numbers: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not all(text in self.log(number) for number in numbers):
            assert time.monotonic() < deadline, [self.log(number) for number in numbers]


@pytest.fixture
def node(tmp_path):
    return lambda *commands, **fields: Node(tmp_path / "a root", [*commands], **{"pack": 2, **fields})


def test_each_of_a_pack_has_its_own_log_claim_and_exit_file(node):
    made = node('echo "one $N"', 'echo "two $N"; exit 3')

    assert made.run() == 1
    assert (made.log(0), made.log(1)) == ("one 0\n", "two 1\n")
    assert [made.exit(number)["exit_code"] for number in (0, 1)] == [0, 3]
    assert {path.name for path in (made.root / "claims").iterdir()} == {f"{token(n)}.0" for n in (0, 1)}


def test_the_element_ends_well_only_if_all_of_its_pack_did(node):
    assert node("true", "true").run() == 0


@pytest.mark.parametrize(
    ("pack", "gpus", "shown"),
    [
        (4, 8, ["0,1 2", "2,3 2", "4,5 2", "6,7 2"]),
        (4, 4, ["0 1", "1 1", "2 1", "3 1"]),
        (4, 1, ["0 1", "0 1", "0 1", "0 1"]),
        (4, 2, ["0 1", "0 1", "1 1", "1 1"]),
        (4, 3, ["0,1,2 3"] * 4),
        # The last pack has fewer, and its trials have no more than those of the others.
        (8, 8, ["0 1", "1 1", "2 1", "3 1"]),
    ],
)
def test_the_gpus_of_the_allocation_are_parted_where_they_can_be(node, pack, gpus, shown):
    made = node(*['echo "$CUDA_VISIBLE_DEVICES $LOCAL_WORLD_SIZE"'] * 4, pack=pack, gpus=gpus)

    assert made.run() == 0
    assert [made.log(number).strip() for number in range(4)] == shown


def test_the_gpus_are_parted_by_the_names_that_slurm_gives_them(node):
    made = node('echo "$CUDA_VISIBLE_DEVICES"', 'echo "$CUDA_VISIBLE_DEVICES"', gpus=2)
    made.run(CUDA_VISIBLE_DEVICES="5,7")

    assert [made.log(number).strip() for number in (0, 1)] == ["5", "7"]


def test_every_one_of_a_pack_has_a_port_of_its_own(node):
    made = node(*['echo "$MASTER_PORT"'] * 2)
    made.run()

    assert made.log(0) != made.log(1)


def test_one_that_is_stopped_saves_its_work_and_the_others_go_on(node):
    saving = "trap 'echo saved; exit 1' TERM; echo started; while :; do sleep 0.05 || :; done"
    made = node(saving, "echo started; while [ ! -e ../0/exit.json ]; do sleep 0.05; done; echo done")
    process = made.start()
    made.until_logged("started", 0, 1)
    (made.launch_dir(0) / "cancelled").touch()

    assert process.wait(PATIENCE_S) == 1
    assert (made.exit(0)["word"], made.exit(1)["exit_code"]) == ("killed", 0)
    assert "saved" in made.log(0)
    assert made.log(1) == "started\ndone\n"


def test_the_warning_of_the_time_limit_reaches_all_of_them(node):
    waiting = "echo started; sleep 600"
    made = node(waiting, waiting)
    process = made.start()
    made.until_logged("started", 0, 1)
    os.kill(process.pid, 10)

    assert process.wait(PATIENCE_S) == 1
    assert [made.exit(number)["word"] for number in (0, 1)] == ["timed_out", "timed_out"]


def test_one_that_was_cancelled_while_the_job_waited_is_not_started(node):
    made = node("echo ran", "echo ran")
    (made.launch_dir(0) / "cancelled").touch()
    made.run()

    assert (made.log(0), made.log(1)) == ("", "ran\n")


def test_a_second_copy_of_the_element_leaves_without_touching_anything(node):
    made = node("echo ran", "echo ran; exit 3")
    made.run()
    before = [made.exit(number) for number in (0, 1)]

    assert made.run() == 1
    assert [made.exit(number) for number in (0, 1)] == before
    assert [made.log(number).count("ran\n") for number in (0, 1)] == [1, 1]


def test_what_had_ended_is_not_run_again_when_slurm_starts_the_job_again(node):
    made = node("echo ran", "echo ran")
    made.run()
    (made.launch_dir(1) / "exit.json").write_text('{"exit_code": 1, "word": "signalled"}')

    made.run(SLURM_RESTART_COUNT="1")

    assert [made.log(number).count("ran\n") for number in (0, 1)] == [1, 2]
    assert (made.exit(0)["restart"], made.exit(1)["restart"]) == (0, 1)


def test_what_one_left_behind_ends_with_it(node):
    made = node(
        "sleep 600 & echo $! >pid; echo started",
        "until [ -e ../0/exit.json ]; do sleep 0.05; done; pid=$(cat ../0/pid)\n"
        'while grep -qs "State:.[^Z]" /proc/$pid/status; do sleep 0.05; done',
    )

    assert made.run() == 0


def test_what_runs_without_its_shell_is_ended_and_its_end_told(node):
    made = node(
        "echo $$ >pid; kill -KILL $PPID; while :; do sleep 0.05; done",
        "until [ -e ../0/exit.json ]; do sleep 0.05; done; pid=$(cat ../0/pid)\n"
        'while grep -qs "State:.[^Z]" /proc/$pid/status; do sleep 0.05; done',
    )

    assert made.run() == 1
    assert [made.exit(number)["exit_code"] for number in (0, 1)] == [137, 0]
    assert "was killed" in made.log(0)


def test_the_command_has_no_descriptor_of_the_shell_that_runs_the_pack(node):
    made = node(*["cd /proc/$BASHPID/fd && readlink * || :"] * 2)
    made.run()

    assert "pipe:" not in made.log(0)


def test_a_node_without_the_array_file_says_so(node):
    made = node("true", "true")
    (made.root / "batch" / "packs").unlink()

    assert made.run() == 64
