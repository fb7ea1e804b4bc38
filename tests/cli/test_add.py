"""`airflows resume SWEEP --add FILE`: the difference is shown, agreed to, and made; what cannot be is refused."""

import contextlib
import signal
import sqlite3

import pytest

OBJECTIVE = {"metric": "loss", "goal": "minimize"}


def numbers(cli):
    return {t["number"]: t["overrides"]["parameters.lr"] for t in runs(cli)}


def runs(cli):
    return cli("list", "--runs", "--all", "-o", "json").document["runs"]


def test_the_difference_is_shown_and_nothing_is_changed_by_looking(cli):
    cli("sweep", cli.sweep_file())
    cli.sweep_file(space={"parameters.lr": [0.2, 0.3, 0.4]}, limits={"concurrent": 1})
    before = cli("get", "lr", "-o", "json").document

    done = cli("resume", "lr", "--add", "sweep.yaml", "--dry-run")

    assert done.status == 0
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [
        f"{before['sweep']} with this file:",
        "added 1 point",
        "+ lr=0.4",
        "kept 2 points with their results",
        "orphaned 1 point no longer in the file: kept in the history, and not ranked (point 0)",
        "settings limits as in the file",
        "Nothing was changed.",
    ]
    assert cli("get", "lr", "-o", "json").document == before


def test_points_are_added_behind_those_there_are_and_the_same_words_may_be_repeated(cli):
    first = cli("sweep", cli.sweep_file(), "-o", "json").document
    cli.sweep_file(space={"parameters.lr": [0.05, 0.2, 0.3]})

    done = cli("resume", "lr", "--add", "sweep.yaml", "-o", "json")
    again = cli("resume", "lr", "--add", "sweep.yaml")

    assert (done.status, again.status) == (0, 0), done.err + again.err
    assert (done.document["sweep"], done.document["trials"]["total"]) == (first["sweep"], 4)
    assert numbers(cli) == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.05}
    assert "has this file already" in again.err
    assert {t["attempt"] for t in runs(cli)} == {0}
    # A plain start of the new file is the same sweep, one of the old file another.
    assert cli("sweep", "sweep.yaml", "-o", "json").document["sweep"] == first["sweep"]
    assert cli("sweep", cli.sweep_file(), "-o", "json").document["sweep"] != first["sweep"]


def test_an_orphan_is_listed_with_its_result_and_does_not_win(cli):
    cli("sweep", cli.sweep_file(objective=OBJECTIVE))
    with contextlib.closing(sqlite3.connect(cli.home / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE trials SET value = number, reason = ''")
    cli.sweep_file(objective=OBJECTIVE, space={"parameters.lr": [0.2, 0.3]})

    done = cli("resume", "lr", "--add", "sweep.yaml", "-o", "json")

    assert done.document["winner"]["overrides"] == {"parameters.lr": 0.2}
    assert "1 orphaned: its point is no longer in the sweep file" in done.document["message"]
    results = cli("results", "lr", "-o", "json").document
    assert [each["number"] for each in results["unranked"]] == [0]
    assert runs(cli)[0]["value"] == 0
    assert cli("get", "lr", "-o", "json").document["orphaned"] == 1
    assert "their points are no longer in the sweep file" in cli("get", "lr").out


def test_what_would_be_cancelled_needs_a_yes_where_nobody_can_be_asked(cli):
    file = cli.sweep_file("sleep 600", limits={"concurrent": 2})
    driver = cli.start("sweep", file)
    cli.wait_for(lambda: cli.states().get("running") == 2, "two trials to run")
    cli.sweep_file("sleep 600", limits={"concurrent": 2}, space={"parameters.lr": [0.2]})

    driven = cli("resume", "lr", "--add", "sweep.yaml", "--yes")
    assert driven.status == 2
    assert "is driven by process" in driven.error

    driver.send_signal(signal.SIGINT)
    driver.communicate()
    refused = cli("resume", "lr", "--add", "sweep.yaml")
    assert refused.status == 2
    assert "2 points" in refused.error
    assert "say --yes" in refused.error

    assert cli("resume", "lr", "--add", "sweep.yaml", "--yes", "--detach").status == 0
    cli.wait_for(lambda: cli.states() == {"running": 1, "cancelled": 2}, "the orphans to be cancelled")


def test_an_edited_sweep_is_rebuilt_as_it_was(cli):
    cli("sweep", cli.sweep_file())
    cli.sweep_file(space={"parameters.lr": [0.5, 0.3]})
    edited = cli("resume", "lr", "--add", "sweep.yaml", "-o", "json").document
    before = numbers(cli)
    for path in cli.home.glob("ledger.db*"):
        path.unlink()

    done = cli("resume", edited["sweep"], "--rebuild", "-o", "json")

    assert done.status == 0, done.err
    assert done.document["trials"] == edited["trials"]
    assert numbers(cli) == before == {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.5}
    assert cli("get", "lr", "-o", "json").document["orphaned"] == 2


def test_more_draws_of_an_edited_sweep_come_behind_all_others(cli):
    drawn = {"space": {"parameters.lr": {"min": 0.1, "max": 0.9}}}
    cli("sweep", cli.sweep_file())
    cli.sweep_file(**drawn, search={"method": "random", "trials": 1})
    cli("resume", "lr", "--add", "sweep.yaml")

    done = cli("resume", "lr", "--trials", "2", "-o", "json")

    assert (done.status, done.document["trials"]["succeeded"]) == (0, 5)
    assert list(numbers(cli)) == [0, 1, 2, 3, 4]


def test_failed_orphans_are_not_tried_again(cli):
    command = '[ "$AIRFLOWS_TRIAL" != 0 ]'
    assert cli("sweep", cli.sweep_file(command)).status == 1
    cli.sweep_file(command, space={"parameters.lr": [0.2, 0.3]})
    assert cli("resume", "lr", "--add", "sweep.yaml").status == 0

    assert cli("resume", "lr", "--failed").status == 0
    first = runs(cli)[0]
    assert (first["number"], first["state"], first["attempt"]) == (0, "failed", 0)


@pytest.fixture(scope="module")
def swept(shared_cli):
    """A sweep of three points that has ended."""
    shared_cli("sweep", shared_cli.sweep_file())
    return shared_cli


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "other"}, "its name is other"),
        ({"overrides": {"parameters.opt": "sgd"}}, "its base differs in parameters.opt"),
        ({"objective": OBJECTIVE}, "its objective differs"),
        ({"replicates": {"key": "parameters.seed", "values": [0, 1]}}, "its replicates differs"),
        ({"tracking": {}}, "its tracking differs"),
        ({"backend": "slurm"}, "its backend is slurm"),
        (
            {
                "space": {"parameters.lr": {"min": 0.1, "max": 0.9}},
                "search": {"method": "tpe", "trials": 5},
                "objective": OBJECTIVE,
            },
            "search.method tpe chooses each point by the values of those before",
        ),
        ({"space": {"compute.num_accelerators": [0]}}, "Trial 0 cannot run"),
    ],
)
def test_what_would_be_another_sweep_is_refused_and_said(swept, fields, words):
    swept.sweep_file(file="other.yaml", **fields)

    done = swept("resume", "lr", "--add", "other.yaml", "--yes")

    assert done.status == 2
    assert words in done.error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lr", "--add", "sweep.yaml", "--failed"], "takes no other changes"),
        (["lr", "--add", "sweep.yaml", "--trials", "3"], "takes no other changes"),
        (["lr", "--dry-run"], "--dry-run of resume goes with --add"),
        (["nope", "--add", "sweep.yaml"], "there is no sweep 'nope'"),
        (["lr", "--add", "none.yaml"], "none.yaml"),
    ],
)
def test_words_that_do_not_go_together_are_refused(swept, words, told):
    done = swept("resume", *words)

    assert done.status == 2
    assert told in done.error


def test_changed_code_is_refused_and_named(cli):
    fields = {"code_source": {"type": "snapshot", "snapshot": {"root_path": "."}}}
    cli.write("train.py", "print('one')\n")
    cli.train_file(command="true", **fields)
    cli("sweep", cli.sweep_file(base="train.yaml"))
    cli.write("train.py", "print('two')\n")
    cli.sweep_file(base="train.yaml", space={"parameters.lr": [0.7]})

    done = cli("resume", "lr", "--add", "sweep.yaml")

    assert done.status == 2
    assert "the code has changed since sweep lr-" in done.error
    assert "train.py changed" in done.error
    assert numbers(cli) == {0: 0.1, 1: 0.2, 2: 0.3}
