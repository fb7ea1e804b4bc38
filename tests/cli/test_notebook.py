"""A notebook with a real kernel: progress while a sweep is driven, and its results as a table."""

import subprocess
import sys

import pytest

pytest.importorskip("ipykernel", reason="needs ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
nbformat = pytest.importorskip("nbformat", reason="needs nbformat")

SCORE = """
import os, sqlite3, yaml
with open(os.environ["HYPERPARAMETERS_PATH"]) as file:
    loss = yaml.safe_load(file)["lr"]
store = sqlite3.connect(os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///"), timeout=60)
with store:
    for table in ("metrics", "latest_metrics"):
        store.execute(
            f"INSERT INTO {table} (key, value, timestamp, run_uuid, step, is_nan)"
            " VALUES ('<loss>', ?, 1, ?, 3, 0)",
            (loss, os.environ["MLFLOW_RUN_ID"]),
        )
"""
QUIET = """
class Quiet:
    def on_changes(self, changes): ...
    def on_tick(self, snapshot): ...
quiet = airflows.run(airflows.load_sweep('sweep.yaml'), new=True, observer=Quiet())
"""
CELLS = [
    "import airflows",
    "results = airflows.run(airflows.load_sweep('sweep.yaml'))\nresults",
    "print(results)",
    QUIET,
]


@pytest.fixture(scope="module")
def cells(shared_cli):
    """The cells of a notebook that was run."""
    shared_cli.sweep_file(
        f"{sys.executable} {shared_cli.write('score.py', SCORE)}",
        objective={"metric": "<loss>", "goal": "minimize"},
        tracking={},
    )
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(
        made, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(shared_cli.directory)}}
    )
    client.execute(env=shared_cli.env)
    return made.cells


def displays(cell, kind="display_data"):
    return [output["data"] for output in cell["outputs"] if output["output_type"] == kind]


def test_progress_is_one_display_that_ends_as_the_sweep_did(cells):
    (shown,) = displays(cells[1])
    assert "3 of 3 ended" in shown["text/html"]
    assert '<progress value="3" max="3">' in shown["text/html"]
    assert "best &lt;loss&gt; 0.1 (trial 0)" in shown["text/html"]
    assert "succeeded" in shown["text/plain"]


def test_results_are_a_table(cells):
    (shown,) = displays(cells[1], "execute_result")
    html = shown["text/html"]
    assert '<th scope="col">&lt;loss&gt;</th>' in html
    assert all(f"<td>{rank}</td><td>{lr}</td>" in html for rank, lr in [(1, 0.1), (2, 0.2), (3, 0.3)])
    assert "winner: trial 0" in html
    assert shown["text/plain"].startswith("<Results of lr-")


def test_an_observer_of_ones_own_takes_the_place_of_the_display(cells):
    assert displays(cells[3]) == []


def test_nothing_of_this_is_loaded_elsewhere(shared_cli):
    code = "import sys, airflows; airflows.run; print([m for m in sys.modules if m.startswith('IPython')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=shared_cli.env, check=True
    )
    assert done.stdout == "[]\n"
