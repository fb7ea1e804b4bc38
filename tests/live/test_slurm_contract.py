"""What every backend must do, done by a real Slurm."""

import pytest

from airflows.backends.slurm import SlurmBackend, SlurmSettings
from airflows.testing.contract import BackendContract

pytestmark = pytest.mark.live


@pytest.mark.usefixtures("slurm")
class TestSlurmBackend(BackendContract):
    patience_s = 90.0

    @pytest.fixture
    def reopen(self, tmp_path):
        return lambda: SlurmBackend(SlurmSettings(grace=2, patience=10), tmp_path / "home")

    @pytest.fixture
    def backend(self, reopen):
        return reopen()
