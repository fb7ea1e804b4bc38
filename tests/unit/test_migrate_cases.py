"""Scripts of all kinds: which facts are read, what is warned of, and that the files are right."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from airflows.migrate import Migration, migrate
from airflows.sweepfile import sweep_from_mapping
from airflows.train import read_train
from airflows.vetting import validate_points

DATA = Path(__file__).parents[1] / "data" / "sbatch"
CASES = [yaml.safe_load(path.read_text()) for path in sorted(DATA.glob("*.yaml"))]
ARRAYS = yaml.safe_load((DATA.parent / "sbatch-arrays.yaml").read_text())


def migrated(script: str, files: dict[str, str] | None = None, **options: Any) -> Migration:
    return migrate(script, name="job.sbatch", directory="/home/me/project", read=(files or {}).get, **options)


def check_files(made: Migration) -> None:
    """What is written is what airflows reads."""
    assert read_train(made.train_text, file="train.yaml").tree["command"] == made.train["command"]
    if made.sweep is not None:
        tree = yaml.safe_load(made.sweep_text)
        assert tree == made.sweep
        validate_points(sweep_from_mapping({**tree, "base": made.train, "backend": "local"}, directory=DATA))


def test_all_cases_are_there():
    assert len(CASES) == 32


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    made = migrated(case["script"])
    assert made.carried == case["expected"]
    assert {finding.kind for finding in made.warnings} == set(case["warnings"])
    lines = case["script"].count("\n") + 1
    assert all(1 <= finding.line <= lines and finding.message for finding in (*made.warnings, *made.notes))
    check_files(made)


@pytest.mark.parametrize("case", ARRAYS, ids=lambda case: case["name"])
def test_what_becomes_of_an_array(case):
    made = migrated(case["script"], case.get("files"))
    assert (made.sweep or {}).get("space") == case["space"]
    assert sorted({finding.kind for finding in made.warnings}) == case["warnings"]
    check_files(made)


def test_the_guides_script_asks_for_the_same():
    wanted = yaml.safe_load((DATA / "guide" / "train.yaml").read_text())
    made = migrated((DATA / "guide" / "job.sbatch").read_text())
    for key in ("experiment_name", "compute", "code_source", "timeout_minutes", "max_retries"):
        assert made.train[key] == wanted[key]
    assert {finding.kind for finding in made.warnings} == {"rendezvous", "srun"}
    assert made.sweep is None
