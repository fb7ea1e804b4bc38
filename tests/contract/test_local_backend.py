import pytest

from airflows.backends.local import LocalBackend, LocalSettings
from airflows.testing.contract import BackendContract


@pytest.mark.usefixtures("clean_env")
class TestLocalBackend(BackendContract):
    @pytest.fixture
    def reopen(self, tmp_path):
        return lambda: LocalBackend(LocalSettings(grace=2, slots=4), tmp_path / "home")

    @pytest.fixture
    def backend(self, reopen):
        return reopen()
