"""The command runs sweeps without Prefect: it imports nothing of it and starts no server."""

import json
import subprocess
import sys

PROGRAM = """
import sys
from airflows.cli import main
try:
    main()
except SystemExit as exc:
    status = exc.code
print(status, "prefect" in sys.modules, file=sys.stderr)
"""


def test_a_sweep_by_the_command_never_imports_prefect(cli, tmp_path):
    cli.sweep_file()
    env = {**cli.env, "PREFECT_HOME": str(tmp_path / "prefect")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "sweep", "sweep.yaml", "-o", "json"],
        cwd=cli.directory,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["state"] == "succeeded"
    assert done.stderr.splitlines()[-1] == "0 False"
    assert not (tmp_path / "prefect").exists()
