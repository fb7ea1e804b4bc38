"""Why trials failed, as a person is told it: grouped, with the values that tell them apart."""

import pytest

# Six trials of a batch of 64 run out of memory, one breaks for a reason of its own.
COMMAND = """
batch=$(sed -n 's/^batch: //p' "$HYPERPARAMETERS_PATH"); seed=$(sed -n 's/^seed: //p' "$HYPERPARAMETERS_PATH")
echo "loading $batch"
if [ "$batch" = 64 ]; then echo "MemoryError: Unable to allocate $seed GiB"; exit 1; fi
if [ "$batch$seed" = 162 ]; then echo "ValueError: bad seed"; exit 3; fi
"""


@pytest.fixture(scope="module")
def swept(shared_cli):
    file = shared_cli.sweep_file(
        COMMAND,
        base={
            "experiment_name": "demo",
            "command": COMMAND,
            "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
            "parameters": {"batch": 1, "seed": 0},
        },
        space={"parameters.batch": [8, 16, 64], "parameters.seed": [1, 2, 3, 4, 5, 6]},
        limits={"concurrent": 4},
        objective={"metric": "loss", "goal": "minimize"},
    )
    shared_cli.ended = shared_cli("sweep", file)
    return shared_cli


def told(text):
    """Return the lines from the causes on."""
    lines = [line.strip() for line in text.splitlines()]
    return lines[lines.index("7 failed, 2 causes") + 1 :]


@pytest.mark.parametrize("words", [["results", "lr"], ["get", "lr"], None])
def test_failures_are_grouped_by_cause_with_the_values_that_tell_them_apart(swept, words):
    lines = told((swept(*words) if words else swept.ended).out)
    assert lines[0].startswith("6 x out of memory at parameters.batch = 64: MemoryError: Unable")
    assert lines[1:3] == ["| loading 64", "airflows logs " + lines[2].split()[2] + " --attempt 0"]
    assert lines[3].startswith("1 x error: ValueError: bad seed")


def test_the_documents_say_the_same(swept):
    for words in (["results", "lr"], ["get", "lr"]):
        memory, other = swept(*words, "-o", "json").document["causes"]
        assert (memory["class"], memory["trials"], memory["failed"]) == ("out_of_memory", 6, 6)
        assert memory["where"] == "parameters.batch = 64"
        assert memory["last_lines"][0] == "loading 64"
        assert (other["trials"], other["where"], other["last_lines"][-1]) == (1, None, "ValueError: bad seed")


def test_the_command_that_is_named_next_shows_the_log(swept):
    memory, _ = swept("results", "lr", "-o", "json").document["causes"]
    done = swept(*memory["next"].split()[1:])
    assert (done.status, done.out.splitlines()[0]) == (0, "loading 64")


# resume --failed --class


def test_a_resume_may_be_for_one_class_of_failures_and_a_mixture_of_code_is_told(cli):
    """Both kinds of failure are repaired, and only one is asked for."""
    (cli.directory / "code").mkdir()
    cli.write("code/run.sh", COMMAND)
    base = {
        "experiment_name": "demo",
        "command": 'bash "$CODE_SOURCE_PATH/run.sh"',
        "compute": {"accelerator_type": "GPU_1xA10", "num_accelerators": 1},
        "code_source": {"type": "snapshot", "snapshot": {"root_path": str(cli.directory / "code")}},
        "parameters": {"batch": 1, "seed": 0},
    }
    file = cli.sweep_file(
        base=base,
        space={"parameters.batch": [8, 16, 64], "parameters.seed": [1, 2]},
        objective={"metric": "loss", "goal": "minimize"},
    )
    assert cli("sweep", file).status == 1
    assert "versions of the code" not in cli("results", "lr").out
    cli.write("code/run.sh", "true\n")

    cli("resume", "lr", "--failed", "--class", "out_of_memory")
    trials = cli("list", "--all", "--runs", "-o", "json").document["runs"]
    assert [
        (trial["class"], trial["overrides"]["parameters.batch"]) for trial in trials if trial["class"]
    ] == [("error", 16)]
    assert "2 versions of the code: 4 with " in cli("results", "lr").out
    versions = cli("results", "lr", "-o", "json").document["code"]
    assert [version["trials"] for version in versions] == [4, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--class", "error"], "--class goes with --failed"),
        (["--failed", "--class", "oom"], "There are: code_damaged, duplicate, error"),
    ],
)
def test_a_class_that_makes_no_sense_is_refused(swept, words, told):
    done = swept("resume", "lr", *words)
    assert done.status == 2
    assert told in done.error
