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
    assert lines[3] == "1 x error: ValueError: bad seed"


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
