"""Make the pictures of README.md anew.

    python tools/screenshots.py

Sweeps the example (a minute), unless a home with a sweep is given, and writes into docs/images/: what the
command prints as SVG, the HTML report as PNG, which takes Chromium.
"""

# ruff: noqa: INP001

from __future__ import annotations

import argparse
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
AIRFLOWS = Path(sys.executable).parent / "airflows"
COLUMNS = 124
REPORT_SIZE = "1280,860"
# Scripts draw the plots: Chromium's clock runs ahead until they have.
DRAWING_MS = 8_000


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--home", type=Path, help="an $AIRFLOWS_HOME with the sweep; else the example is swept"
    )
    parser.add_argument("--sweep", default="digits", help="its name (digits)")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="where the pictures go")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        env = environment(given.home or Path(directory))
        if given.home is None:
            example = ROOT / "sweeps" / "digits" / "sweep.yaml"
            subprocess.run([AIRFLOWS, "sweep", example, "--yes"], env=env, check=True)
        given.to.mkdir(parents=True, exist_ok=True)
        text = on_a_terminal(["results", given.sweep], env)
        (given.to / "results.svg").write_text(as_svg(text, f"airflows results {given.sweep}"))
        page = Path(directory) / "report.html"
        subprocess.run([AIRFLOWS, "results", given.sweep, "--html", page], env=env, check=True)
        photograph(page, given.to / "report.png")


def environment(home: Path) -> dict[str, str]:
    """Return variables in which nothing of this machine shows."""
    foreign = ("AIRFLOWS_", "MLFLOW_", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {
        "AIRFLOWS_HOME": str(home),
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "LINES": "50",
    }


def on_a_terminal(words: list[str], env: Mapping[str, str]) -> str:
    """Return what a command prints on a terminal, with its colours."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [AIRFLOWS, *words], env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        printed = b""
        while chunk := _read(ours):
            printed += chunk
    os.close(ours)
    if process.returncode:
        raise SystemExit(printed.decode())
    return printed.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # Linux says so when nobody holds the other end any more.
        return b""


def as_svg(text: str, title: str) -> str:
    """Return text with colours as a picture that fetches no font from anywhere."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(text.rstrip()))
        made = console.export_svg(title=title, unique_id="terminal")
    return re.sub(r"\s*@font-face \{.*?\}", "", made, flags=re.DOTALL)


def photograph(page: Path, target: Path) -> None:
    """Write a picture of the top of a page."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        message = "Chromium is needed for the picture of the report: apt-get install chromium"
        raise SystemExit(message)
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
    ]
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *(chromium, *options, f"--user-data-dir={profile}", f"--window-size={REPORT_SIZE}"),
                *(f"--virtual-time-budget={DRAWING_MS}", f"--screenshot={target.resolve()}"),
                page.resolve().as_uri(),
            ],
            stderr=subprocess.DEVNULL,
            check=True,
        )


if __name__ == "__main__":
    main()
