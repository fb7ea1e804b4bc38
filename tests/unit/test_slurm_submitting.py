"""From jobs to arrays, with an sbatch that says what the test wants; and what is written before it is called."""

import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflows.backends.base import Job
from airflows.backends.slurm.batches import Batches
from airflows.backends.slurm.commands import Answer
from airflows.backends.slurm.submitting import Chunk, Submitter
from airflows.errors import BackendUnavailableError
from airflows.ids import Token

POLICY = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)"
FULL = Answer(1, "", f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}")
REFUSED = Answer(1, "", "sbatch: error: Batch job submission failed: Invalid qos specification")
NO_NODE = Answer(
    1, "", "sbatch: error: Batch job submission failed: Requested node configuration is not available"
)
SILENT = Answer(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
UNANSWERED = Answer(124, "", "")


class Site:
    """Makes arrays 1, 2, … of what is submitted, but for the answers that a test sets."""

    def __init__(self, root: Path, *, most: int = 100, room: int = 10_000) -> None:
        self.root = root
        self.most, self.room = most, room
        self.answers: list[Answer | BackendUnavailableError] = []
        self.chunks: list[Chunk] = []
        self.accepted: list[int] = []
        self.batches = Batches(root)

    def submit(self, words, _env) -> Answer:
        assert words[0] == "--parsable"
        assert Path(words[1]).exists(), "the script must be there before sbatch is called"
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BackendUnavailableError):
            raise answer
        if answer is None and len(self.chunks[-1].jobs) > self.room:
            answer = FULL
        if answer is not None:
            return answer
        self.room -= len(self.chunks[-1].jobs)
        self.accepted.append(len(self.chunks[-1].jobs))
        return Answer(0, f"{len(self.accepted)}\n", "")

    def script(self, chunk: Chunk) -> str:
        self.chunks.append(chunk)
        return "#!/bin/bash\n"

    def job(self, number: int, **fields) -> Job:
        launch_dir = self.root / str(number)
        launch_dir.mkdir(exist_ok=True)
        usual = {
            "token": Token(f"d-0a1b2c-{number:04d}-a0"),
            "sweep": "d-0a1b2c",
            "number": number,
            "attempt": 0,
            "launch_dir": launch_dir,
            "files": {},
            "nodes": 1,
            "accelerators_per_node": 1,
            "accelerator_type": "GPU_1xA10",
            "work_dir": None,
            "env": {},
            "secrets": {},
            "checkpoint_dir": "/c",
        }
        return Job(**{**usual, **fields})

    def hand_in(self, count: int, **fields) -> list:
        return self.submits([self.job(number, **fields) for number in range(count)])

    def submits(self, jobs: list[Job]) -> list:
        made = Submitter(
            commands=self,
            batches=self.batches,
            most=self.most,
            environment={},
            variables=lambda job: dict(job.env),
            image=lambda _: "",
            script_of=self.script,
            clock=lambda: 5.0,
        )
        return made.submit(jobs)


@pytest.fixture
def site(tmp_path) -> Site:
    return Site(tmp_path)


def kinds(answers: list) -> list[str]:
    return ["sent" if isinstance(one, str) else type(one).__name__ for one in answers]


def test_all_jobs_of_one_shape_are_one_array(site):
    answers = site.hand_in(5)

    assert [answer.partition("@")[0] for answer in answers] == ["1_0", "1_1", "1_2", "1_3", "1_4"]
    assert site.accepted == [5]


def test_jobs_of_different_shapes_are_arrays_of_their_own_and_answers_keep_the_order(site):
    jobs = [site.job(number, nodes=1 + number % 2) for number in range(4)]

    answers = site.submits(jobs)

    assert [answer.partition("@")[0] for answer in answers] == ["1_0", "2_0", "1_1", "2_1"]


def test_an_array_is_never_longer_than_the_site_takes(tmp_path):
    site = Site(tmp_path, most=4)
    site.hand_in(10)

    assert site.accepted == [4, 4, 2]
    assert [chunk.after for chunk in site.chunks] == [None, None, None]


def test_a_throttled_array_waits_for_the_one_before_it(tmp_path):
    site = Site(tmp_path, most=4)
    site.hand_in(10, throttle=2)

    assert [chunk.after for chunk in site.chunks] == [None, 1, 2]


def test_what_does_not_fit_is_offered_in_halves_and_the_rest_kept(tmp_path):
    site = Site(tmp_path, room=5)
    answers = site.hand_in(8)

    assert site.accepted == [4, 1]
    assert kinds(answers) == ["sent"] * 5 + ["SubmitUnsentError"] * 3
    assert "no room for trial 5 now: AssocMaxSubmitJobLimit" in str(answers[5])


def test_of_a_batch_that_was_not_taken_nothing_is_left(site):
    site.answers = [REFUSED]
    answers = site.hand_in(3)

    assert kinds(answers) == ["SubmitRejectedError"] * 3
    assert "Invalid qos specification" in str(answers[0])
    assert not list(site.root.glob("batches/*/*"))


@pytest.mark.parametrize("answer", [SILENT, UNANSWERED, Answer(0, "no number\n", "")])
def test_an_answer_that_was_lost_leaves_all_as_it_is_and_submits_nothing_more(tmp_path, answer):
    site = Site(tmp_path, most=2)
    site.answers = [answer]
    answers = site.hand_in(5)

    assert kinds(answers) == ["SubmitAmbiguousError"] * 2 + ["SubmitUnreachedError"] * 3
    assert len(site.chunks) == 1
    # Whoever looks for the job needs its array file.
    assert list(site.root.glob("batches/*/*/tasks"))


def test_without_sbatch_nothing_was_sent(site):
    site.answers = [BackendUnavailableError("sbatch is not installed here, or not on PATH.")] * 2
    answers = site.hand_in(2)

    assert kinds(answers) == ["SubmitUnsentError"] * 2
    assert "not installed" in str(answers[0])


def test_a_job_whose_files_cannot_be_written_keeps_no_other_back(site):
    jobs = [site.job(number) for number in range(3)]
    (site.root / "1").rmdir()

    assert kinds(site.submits(jobs)) == ["sent", "SubmitUnsentError", "sent"]


def test_the_index_of_a_job_is_its_line_in_the_array_file(site):
    answers = site.hand_in(3)

    batch = answers[2].partition("@")[2]
    lines = (site.batches.directory(batch) / "tasks").read_text().splitlines()
    assert lines[2] == f"d-0a1b2c-0002-a0\t{site.root}/2"
    assert site.batches.job_of(batch) == (1, 5.0)


def test_secret_variables_are_in_a_file_that_nobody_else_may_read(tmp_path):
    job = SimpleNamespace(
        launch_dir=tmp_path,
        work_dir=Path("/work"),
        secrets={},
        secret_env={"MLFLOW_TRACKING_PASSWORD": "s3kret", "MODE": "secret"},
    )
    submitter = Submitter(
        *[None] * 4, variables=lambda _: {"MODE": "plain"}, image=None, script_of=None, clock=None
    )

    assert submitter._prepare(job) is None
    path = tmp_path / "environment.sh"
    assert path.read_text().splitlines()[1:] == [
        "export MODE=secret",
        "export MLFLOW_TRACKING_PASSWORD=s3kret",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_jobs_that_avoid_other_nodes_are_another_array(site):
    site.submits([site.job(0), site.job(1, avoid=("n3",)), site.job(2, avoid=("n3",))])

    assert [(len(chunk.jobs), chunk.shape.avoid) for chunk in site.chunks] == [(1, ()), (2, ("n3",))]


def test_where_only_the_avoided_nodes_would_do_they_are_taken(site):
    site.answers = [NO_NODE]

    answers = site.hand_in(3, avoid=("n3",))

    assert [chunk.shape.avoid for chunk in site.chunks] == [("n3",), ()]
    assert site.accepted == [3]
    assert kinds(answers) == ["sent"] * 3


def test_what_is_refused_on_all_nodes_is_refused(site):
    site.answers = [REFUSED, REFUSED]

    answers = site.hand_in(2, avoid=("n3",))

    assert kinds(answers) == ["SubmitRejectedError"] * 2


def test_packed_jobs_are_elements_of_so_many_and_the_last_has_fewer(site):
    answers = site.hand_in(5, pack=2)

    assert [answer.partition("@")[0] for answer in answers] == ["1_0/0", "1_0/1", "1_1/0", "1_1/1", "1_2/0"]
    assert [chunk.elements for chunk in site.chunks] == [3]


def test_an_array_takes_as_many_packs_as_it_takes_elements(tmp_path):
    site = Site(tmp_path, most=3)
    site.hand_in(10, pack=2)

    assert site.accepted == [6, 4]


def test_what_does_not_fit_into_the_queue_is_offered_in_whole_packs(tmp_path):
    site = Site(tmp_path, room=5)
    answers = site.hand_in(12, pack=3)

    assert site.accepted == [3]
    assert kinds(answers) == ["sent"] * 3 + ["SubmitUnsentError"] * 9
