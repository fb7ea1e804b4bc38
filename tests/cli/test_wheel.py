"""What people install is whole."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    # A copy, because building leaves a build directory whose stale files would get into the wheel.
    source = tmp_path / "source"
    shutil.copytree(ROOT / "airflows", source / "airflows", ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*command, "--wheel-dir", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    written = {
        path.relative_to(source).as_posix() for path in (source / "airflows").rglob("*") if path.is_file()
    }
    assert written <= set(zipfile.ZipFile(wheel).namelist())
