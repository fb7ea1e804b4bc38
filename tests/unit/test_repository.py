"""What holds for the repository as a whole: its files name no place, its locks and docs are in order."""

import fnmatch
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock")

# Written in two halves so that this file itself may be looked through.
REGISTRY_HOSTS = ["pypi" + ".org", "python" + "hosted.org", "deb." + "debian.org", "npm" + "js."]
NEIGHBOURS = ["../" + "shared", "." + "library", "/work" + "/main", "/work" + "/shared", f"{ROOT}/"]


def files() -> Iterator[Path]:
    """Every file but what .gitignore names."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()] + [".git"]
    for directory, names, filenames in os.walk(ROOT):
        names[:] = [name for name in names if not any(fnmatch.fnmatch(name, p) for p in ignored)]
        for name in filenames:
            if not any(fnmatch.fnmatch(name, p) for p in ignored):
                yield Path(directory, name)


def naming(words: list[str]) -> list[str]:
    """Return the files that hold one of the words, with the word."""
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in files()}
    return [f"{path}: {word}" for path, text in texts.items() for word in words if word in text]


def modules(*folders: str) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


def locked(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    return {normal(package): version for package, version in (line.split("==") for line in lines)}


def normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def required(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = [text for extra in extras for text in project["optional-dependencies"][extra]]
    return [Requirement(text) for text in project["dependencies"] + own if not text.startswith("airflows")]


def test_no_file_names_a_package_registry():
    assert naming(REGISTRY_HOSTS) == []


def test_no_file_names_a_place_outside_the_repository():
    assert naming(NEIGHBOURS) == []


def test_modules_stay_under_400_lines():
    lengths = {
        path: len(path.read_text().splitlines()) for path in modules("airflows", "flows", "benchmarks")
    }
    assert {str(path): length for path, length in lengths.items() if length > 400} == {}


def test_no_module_is_a_drawer():
    drawers = ("utils", "util", "helpers", "misc", "common")
    assert [path for path in modules("airflows") if path.stem in drawers or path.parent.name in drawers] == []


def test_unit_tests_do_not_sleep():
    sleeps = re.compile(r"\bsleep\([^)]")
    assert [
        path for path in modules("tests") if "unit" in path.parts and sleeps.search(path.read_text())
    ] == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_names_and_versions_only(name):
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    assert len(lines) > 50


@pytest.mark.parametrize(
    ("name", "extras"), [(LOCKS[0], ["server"]), (LOCKS[1], ["server", "dev", "postgres", "stats"])]
)
def test_a_lock_satisfies_the_project(name, extras):
    versions = locked(name)
    for requirement in required(*extras):
        assert requirement.specifier.contains(versions[normal(requirement.name)]), requirement
    assert "setuptools" in versions, "the editable install must work without asking a registry"


def test_the_locks_agree():
    assert locked(LOCKS[0]).items() <= locked(LOCKS[1]).items()


def test_the_changelog_has_a_place_for_the_next_entry():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert changelog.startswith("# Changelog\n")
    assert "\n## [Unreleased]\n" in changelog


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "LICENSE"])
def test_a_page_every_repository_has_is_there(name):
    assert (ROOT / name).read_text().strip()


@pytest.mark.parametrize("name", [".ci/run", "tools/environment", "tools/lock"])
def test_a_script_can_be_run(name):
    assert os.access(ROOT / name, os.X_OK)
