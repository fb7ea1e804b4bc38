"""Dying at every boundary on a fake Kubernetes cluster: one Job for each token, nothing lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflows.backends.kubernetes import KubernetesBackend, KubernetesSettings
from airflows.ids import Token
from airflows.ledger import SweepState
from airflows.testing.cluster import Cluster
from airflows.testing.crash import BASE, Boundaries, Died, World, check, make_world


@dataclass
class Running:
    """The cluster as the crash suite looks at it."""

    cluster: Cluster

    class Clock:
        def __init__(self, cluster):
            self._cluster = cluster

        def __call__(self):
            return self._cluster.clock.now()

        def advance(self, seconds):
            self._cluster.clock.advance(seconds)

    @property
    def clock(self):
        return self.Clock(self.cluster)

    @property
    def runs(self):
        return {Token(job["metadata"]["name"]): job for job in self.cluster.list("jobs")}

    @property
    def submissions(self):
        return [Token(job["metadata"]["name"]) for job in self.cluster.list("jobs")]


@dataclass
class KubernetesWorld(World):
    def connect(self):
        cluster = self.cluster.cluster
        settings = KubernetesSettings(kubeconfig=cluster.kubeconfig, image="python:3.11", patience=1)
        return KubernetesBackend(
            settings,
            self.home / "root",
            clock=self.cluster.clock,
            pause=lambda seconds: cluster.clock.advance(max(seconds, 0.05)),
        )


@contextmanager
def world(home, *, faults=(), nodes=1, run_s=2.0) -> Iterator[KubernetesWorld]:
    with Cluster(namespaces=["ml"]) as cluster:
        cluster.pods.plan(run_s=run_s)
        cluster.pods.plan(job="*-0001-a0", run_s=run_s, exit_code=1, logs=["ValueError: no luck"])
        for kind, fields in faults:
            cluster.faults.add(kind, **fields)
        compute = {**BASE["compute"], "num_accelerators": nodes}
        tree = {"base": {**BASE, "compute": compute}}
        made = make_world(home, scripts=lambda _job: None, tree=tree)
        fields = {name: getattr(made, name) for name in ("home", "sweep", "database")}
        there = KubernetesWorld(cluster=Running(cluster), **fields)
        yield there
        there.close()
        made.close()


def count_boundaries(home, **fields):
    boundaries = Boundaries()
    with world(home, **fields) as there:
        row = there.drive(boundaries, dead_for_sure=True)
        check(there, row.id)
    return len(boundaries.names)


def die_and_go_on(home, die_at, **fields):
    """Die at the k-th boundary, then start again; return whether there was a k-th one."""
    with world(home, **fields) as there:
        died = False
        try:
            row = there.drive(Boundaries(die_at), dead_for_sure=True)
        except Died:
            died = True
            row = there.drive(Boundaries(), dead_for_sure=True)

        assert row.state is SweepState.SUCCEEDED
        check(there, row.id)
        assert len(there.cluster.runs) == 4
        services = [one["metadata"]["name"] for one in there.cluster.cluster.list("services")]
        assert sorted(services) == (sorted(there.cluster.runs) if fields.get("nodes", 1) > 1 else [])
    return died


def test_dying_at_every_boundary_loses_and_repeats_nothing(tmp_path):
    count = count_boundaries(tmp_path / "count")
    died = [die_and_go_on(tmp_path / str(k), k) for k in range(1, count + 1)]

    assert sum(died) > 50


def test_dying_with_lost_replies_makes_nothing_twice(tmp_path):
    lost = [("dropped_reply", {"route": "jobs/create", "times": 2})]
    count = count_boundaries(tmp_path / "count", faults=lost)
    died = [die_and_go_on(tmp_path / str(k), k, faults=lost) for k in range(1, count + 1, 3)]

    assert sum(died) > 20


def test_dying_between_a_job_and_its_service_leaves_no_node_waiting(tmp_path):
    refused = [("internal", {"route": "services/create", "times": 1})]
    fields = {"faults": refused, "nodes": 2, "run_s": 30.0}
    for die_at in range(6, 30, 4):
        assert die_and_go_on(tmp_path / str(die_at), die_at, **fields)


def test_a_busy_and_forgetful_cluster_loses_nothing(tmp_path):
    faults = [
        ("rate_limited", {"route": "*", "probability": 0.1}),
        ("dropped_reply", {"route": "*", "probability": 0.1}),
    ]
    for die_at in range(3, 60, 9):
        die_and_go_on(tmp_path / str(die_at), die_at, faults=faults)
