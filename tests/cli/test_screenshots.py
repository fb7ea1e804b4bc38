"""The pictures of README.md: small, there, and made anew by their script."""

import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "screenshots.py"
MOST_BYTES = 200_000
SVG = "{http://www.w3.org/2000/svg}"


def pictures():
    return [ROOT / name for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text())]


def words_of(svg):
    """Return what a picture of a terminal says, a space between two words."""
    texts = ET.parse(svg).iter(f"{SVG}text")  # noqa: S314 - our own file
    return " ".join(word for text in texts for word in "".join(text.itertext()).split())


def test_the_pictures_of_the_readme_are_there_and_small():
    found = pictures()
    assert len(found) == 2
    assert [path for path in found if not 0 < path.stat().st_size < MOST_BYTES] == []


@pytest.mark.skipif(
    shutil.which("chromium") is None, reason="Chromium is not installed (apt-get install chromium)"
)
def test_the_script_makes_them_anew(cli, tmp_path):
    done = cli("sweep", cli.sweep_file(objective={"metric": "loss", "goal": "minimize"}))
    assert done.status == 0, done.err
    words = ["--home", cli.home, "--sweep", "lr", "--to", tmp_path]
    made = subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr

    assert {path.name for path in tmp_path.iterdir() if path.is_file()} >= {path.name for path in pictures()}
    assert re.search(
        r"airflows results lr lr-\w{6} minimize loss .* There is no winner\.",
        words_of(tmp_path / "results.svg"),
    )
    assert "url(" not in (tmp_path / "results.svg").read_text().replace("url(#", "")
    width, height = struct.unpack(">II", (tmp_path / "report.png").read_bytes()[16:24])
    assert (width, height) == (1280, 860)


def test_the_picture_in_the_repository_is_one_of_the_example():
    said = words_of(ROOT / "docs" / "images" / "results.svg")
    assert re.search(r"RANK learning_rate hidden_units val_accuracy .* winner digits-\w{6}/\d+ ", said)
