"""What is written for a job before it is submitted."""

import stat
from pathlib import Path
from types import SimpleNamespace

from airflows.backends.slurm.submitting import Submitter


def test_secret_variables_are_in_a_file_that_nobody_else_may_read(tmp_path):
    job = SimpleNamespace(
        launch_dir=tmp_path,
        work_dir=Path("/work"),
        secrets={},
        secret_env={"MLFLOW_TRACKING_PASSWORD": "s3kret", "MODE": "secret"},
    )
    submitter = Submitter(
        *[None] * 4, variables=lambda _: {"MODE": "plain"}, image=None, script_of=None, clock=None
    )

    assert submitter._prepare(job) is None
    path = tmp_path / "environment.sh"
    assert path.read_text().splitlines()[1:] == [
        "export MODE=secret",
        "export MLFLOW_TRACKING_PASSWORD=s3kret",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
