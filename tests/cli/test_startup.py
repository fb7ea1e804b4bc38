"""A short answer comes fast because little is imported for it: counted, since a time depends on the machine."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from airflows.cli import main
try:
    main()
except SystemExit as exc:
    print(exc.code, *sys.modules, file=sys.stderr)
"""
HEAVY = {
    *("mlflow", "sqlalchemy", "optuna", "prefect", "databricks", "kubernetes"),
    *("numpy", "scipy", "pandas", "pyarrow", "psycopg", "psutil", "rich", "asyncio", "ssl"),
}


def packages(modules: list[str]) -> set[str]:
    """Return the packages that modules belong to."""
    return {name.partition(".")[0] for name in modules}


@pytest.fixture
def imported(cli):
    """Run a command that succeeds; return what it imported."""

    def run(*words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            cwd=cli.directory,
            env=cli.env,
            capture_output=True,
            text=True,
            check=True,
        )
        status, *modules = done.stderr.split()
        assert status == "0", done.stderr
        return modules

    return run


def test_help_imports_neither_what_drives_sweeps_nor_what_reads_files(imported):
    modules = imported("--help")

    assert packages(modules) & {*HEAVY, "pydantic", "yaml"} == set()
    assert len(modules) < 240


@pytest.mark.parametrize("search", [{}, {"method": "tpe", "trials": 20}])
def test_a_dry_run_imports_nothing_that_drives_sweeps(cli, imported, search):
    objective = {"metric": "loss", "goal": "minimize"}
    replicates = {"key": "parameters.seed", "values": [0, 1]}
    cli.sweep_file(replicates=replicates, objective=objective, search=search)

    modules = imported("sweep", "sweep.yaml", "--dry-run")

    assert packages(modules) & HEAVY == set()
    assert len(modules) < 410
