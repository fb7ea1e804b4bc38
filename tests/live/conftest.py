"""Real services that the live tests share; absent ones are a skip with the reason."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflows.testing.slurm_cluster import Cluster, running, why_not

SLURM = Path(__file__).parent / "slurm"


def start(**settings) -> Iterator[Cluster]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with running(SLURM, **settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """A cluster with accounts, for all tests that do not ask for another."""
    yield from start(port=17100, maxarray=300, grace=10)


@pytest.fixture
def slurm(slurm_cluster, clean_env) -> Iterator[Cluster]:
    """The common cluster, whole, empty, and found by Slurm's commands."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "SBATCH_"))]:
        clean_env.delenv(name)
    clean_env.setenv("SLURM_CONF", slurm_cluster.conf)
    slurm_cluster.up()
    yield slurm_cluster
    slurm_cluster.clear()


@pytest.fixture
def slurm_without_accounts(clean_env) -> Iterator[Cluster]:
    """A cluster without slurmdbd, which forgets a job seconds after its end."""
    for cluster in start(port=17200, db=0, minage=2, nodes=2):
        clean_env.setenv("SLURM_CONF", cluster.conf)
        yield cluster
