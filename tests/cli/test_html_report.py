"""`airflows results SWEEP --html FILE`: one file, whole or not there, and refusals of what makes no sense."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

REPORT = "report.html"


@pytest.fixture(scope="module")
def swept(shared_cli):
    """The command, beside a sweep of three trials that has ended."""
    shared_cli.sweep_file()
    assert shared_cli("sweep", "sweep.yaml", "--yes").status == 0
    return shared_cli


@pytest.fixture
def report(swept):
    path = swept.directory / REPORT
    yield path
    path.unlink(missing_ok=True)


def left_aside(swept):
    return [path.name for path in swept.directory.iterdir() if path.name.startswith(f".{REPORT}")]


def test_the_report_is_written_and_named(swept, report):
    done = swept("results", "lr", "--html", REPORT)
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{REPORT}  4.")
    text = report.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
    assert "It ran without MLflow, so there are no learning curves." in text
    assert left_aside(swept) == []
    assert report.stat().st_mode & 0o777 == 0o644


def test_json_is_the_document_of_results_and_names_the_file(swept, report):
    done = swept("results", "lr", "--html", REPORT, "-o", "json")
    assert done.document["html"] == {"file": REPORT, "bytes": report.stat().st_size}
    assert done.document["sweep"].startswith("lr-")
    assert "html" not in swept("results", "lr", "-o", "json").document


def test_an_earlier_report_is_replaced(swept, report):
    report.write_text("old")
    assert swept("results", "lr", "--html", REPORT).status == 0
    assert report.stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--top", "2"], "--top"),
        (["--where", "lr=0.1"], "--where"),
        (["--format", "csv"], "--format csv"),
        (["--format", "json"], "--format json"),
        (["--to", "x.csv"], "--to"),
    ],
)
def test_options_of_the_table_are_refused(swept, report, words, named):
    done = swept("results", "lr", "--html", REPORT, *words)
    assert (done.status, done.out) == (2, "")
    assert f"{named} does not go with --html" in done.error
    assert not report.exists()


def test_a_place_that_cannot_be_is_refused_and_named(swept):
    (swept.directory / "folder").mkdir(exist_ok=True)
    done = swept("results", "lr", "--html", "folder")
    assert done.status == 2
    assert "folder is a directory" in done.error
    assert "folder/report.html" in done.error
    done = swept("results", "lr", "--html", "nowhere/report.html")
    assert done.status == 2
    assert f"there is no directory {swept.directory / 'nowhere'}" in done.error
    assert not (swept.directory / "nowhere").exists()


def test_only_a_regular_file_is_replaced_and_a_link_stays_one(swept, report):
    fifo, link = swept.directory / "fifo", swept.directory / "link.html"
    os.mkfifo(fifo)
    for place in ("fifo", "/dev/null"):
        done = swept("results", "lr", "--html", place)
        assert done.status == 2
        assert f"{place} is no regular file" in done.error
    assert fifo.is_fifo()
    assert Path("/dev/null").is_char_device()
    link.symlink_to(REPORT)
    assert swept("results", "lr", "--html", "link.html").status == 0
    assert link.is_symlink()
    assert report.stat().st_size > 1_000_000


def test_a_full_disk_leaves_the_earlier_report_as_it_was(swept, report, airflows_program: Path):
    report.write_text("old")
    command = shlex.join([str(airflows_program), "results", "lr", "--html", REPORT])
    done = subprocess.run(
        # Files may grow to two megabytes, and the report is larger.
        ["bash", "-c", f"ulimit -f 2048; trap '' XFSZ; exec {command}"],
        cwd=swept.directory,
        env=swept.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert report.read_text() == "old"
    assert left_aside(swept) == []


def test_without_plotly_the_extra_is_named_and_nothing_is_written(swept, report):
    # A package of that name without what the report needs comes first on the path.
    (swept.directory / "shadow" / "plotly").mkdir(parents=True)
    (swept.directory / "shadow" / "plotly" / "__init__.py").touch()
    env = {"PYTHONPATH": str(swept.directory / "shadow")}
    done = swept("results", "lr", "--html", REPORT, env=env)
    assert (done.status, done.out) == (2, "")
    assert "needs plotly, which is not installed" in done.error
    assert "pip install 'airflows[report]'" in done.error
    assert not report.exists()
    assert left_aside(swept) == []
