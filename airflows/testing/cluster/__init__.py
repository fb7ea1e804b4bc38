"""A fake Kubernetes cluster: a real HTTP API server with a Job controller, a kubelet and a clock of its own.

In a test:

```python
from airflows.testing.cluster import Cluster

with Cluster(namespaces=["ml"]) as cluster:
    cluster.url, cluster.token, cluster.kubeconfig     # http://127.0.0.1:40001, a bearer token, a Path
    cluster.namespace                                  # the kubeconfig's own: the first of `namespaces`
    ...                                                # POST Jobs, as to any API server
    cluster.clock.advance(60)                          # stands still otherwise; all that is due happens
```

From a shell, `python -m airflows.testing.cluster` serves one and prints the path of its kubeconfig.

`Cluster(settings=None, *, directory=None, port=0, **changes)`; `changes` are fields of `Settings`:

- `namespaces` (`["default"]`), `version` (`"1.36.2"`; older ones drop the fields they do not know), `seed`
- `clock_scale` 0: the clock stands until advanced; 1: real time; 20: faster; `clock_start`
- `nodes` `{"node1": {"nvidia.com/gpu": 8, "cpu": 64, "labels": {…}, "taints": […]}}`; the default is one
  node with room for everything. A resource with a slash that a node does not name is not there
- `claims` (`["work"]`), `secrets` (`{"hf": {"token": "…"}}`): of the first namespace, from the start
- `missing_images` globs of images that cannot be pulled
- `default`, `plans`: what pods do, below; `faults`: what goes wrong, below
- `users`: `[{"name": "admin", "token": "fake-token", "rules": null}]`; rules of a restricted user are
  `[{"verbs": ["create", "get"], "resources": ["jobs.batch", "pods", "pods/log"], "namespaces": ["ml"]}]`
- `kueue`: null (not installed), or `{"queues": {"team-q": "cq"}, "quotas": {"cq": {"nvidia.com/gpu": 8}},
  "priorities": {"high": 100}}`; LocalQueues are made in each namespace
- `history`: how many changes a watch can go back before it is 410 (1000)
- `execute`: pods really run as processes of this machine, below

What pods do; what is said last counts first:

```python
cluster.pods.plan(run_s=60)                                       # each pod: 60 s, then exit code 0
cluster.pods.plan(job="*-0003-a0", index=1, run_s=5, exit_code=3, logs=["boom"])
cluster.pods.plan(job="*-a0", run_s=None)                         # until told to end
cluster.pods.plan(oom=True, run_s=5)                              # 137 OOMKilled
cluster.pods.plan(waiting="ImagePullBackOff", message="…")        # never starts; any reason
cluster.pods.plan(unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
cluster.pods.plan(start_error="exec: no such file")               # 128 StartError
cluster.pods.plan(init_exit_code=65, termination_message="class")
cluster.pods.plan(on_term_exit_code=0, on_term_s=0.1)             # what TERM does; on_term_s=None: ignored

cluster.pods.list(job="…")                     # Pod dicts as they are now, oldest first
cluster.pods.end("job", index=0, exit_code=1)  # lets a running pod end now
cluster.pods.write("job", "a line", index=0)   # into its log
cluster.pods.evict("job", index=0)             # DisruptionTarget=EvictionByEvictionAPI, TERM
cluster.pods.preempt("job", index=0)           # DisruptionTarget=PreemptionByScheduler
cluster.pods.pressure("job", index=0)          # DisruptionTarget=TerminationByKubelet, phase Failed, kept
cluster.pods.delete("job", index=0)            # as kubectl delete pod
```

A pod starts 0.4 s after it was scheduled; a Job's status follows a second or two after its pods, in steps, as
in a real cluster: `advance(10)` after a pod's end is plenty.

```python
cluster.nodes.lose("node1")                    # Ready=Unknown after 43 s, and what follows
cluster.nodes.remove("node1")                  # pods are failed by the garbage collector 48 s later
cluster.nodes.add("node2", {"nvidia.com/gpu": 8})
cluster.faults.add("dropped_reply", route="jobs/create", times=1)   # stored, but no answer comes
cluster.faults.add("rate_limited", route="*", probability=0.1)      # kinds: `KINDS`; see `Fault`
cluster.faults.clear()
cluster.access.forbid("create", "jobs.batch")  # 403 in RBAC's words, and SelfSubjectAccessReview says so
cluster.access.expire()                        # 401 for the first user's token (or the one named)
cluster.renew("new-token")                     # another token for that user, written into the kubeconfig
cluster.quota("q", pods=1)                     # a ResourceQuota; or `{"count/jobs.batch": 3}`
cluster.kueue.preempt("job")                   # evicted, requeued, admitted again when there is room
cluster.kueue.add_queue("name", "cq"), cluster.kueue.remove_queue("name")
cluster.expire_history()                       # every older resourceVersion and continue token is 410 now
cluster.get("jobs", "name"), cluster.list("services"), cluster.put("secrets", {...})   # past the API
cluster.ask("POST", "/apis/batch/v1/namespaces/ml/jobs", {...})    # (status, JSON) of a request
cluster.changes("jobs")                        # [(type, object), …] as a watch tells it
cluster.recorder.counts["jobs/list"], cluster.recorder.requests, cluster.recorder.most_at_once
```

Routes, for faults and counts, are `<resource>/<verb>`: `jobs/create`, `jobs/list`, `jobs/get`, `jobs/patch`,
`jobs/update`, `jobs/delete`, `jobs/deletecollection`, `jobs/watch`, `pods/list`, `pods/log`, `pods/eviction`,
`services/create`, `events/list`, `selfsubjectaccessreviews/create`, `version`, `discovery`, …

With `execute=True` (and `clock_scale=1`, or faster) each pod's containers run as processes, init containers
first: `command`, `args`, `env` with `valueFrom` (fields, Secrets, ConfigMaps), volumes (`emptyDir`,
`configMap`, `secret`, `persistentVolumeClaim`, `hostPath`) as directories. There are no mounts: a mount path
is replaced in the text of commands and variables by the directory on this machine, and so is
`/dev/termination-log`. A claim, which must be `put` or among `claims`, is `cluster.claim("name")` here.
Names of pods behind a headless Service (`<job>-0.<job>`) become 127.0.0.1 in the same way once the
Service exists, and `MASTER_PORT` a free port of each Job, since all pods share one address. `python` is the
interpreter that serves. TERM and KILL come as from a kubelet; `cluster.wait_for(lambda: …, "what")` polls.
"""

from airflows.testing.cluster.cluster import Cluster
from airflows.testing.cluster.faults import KINDS, Fault
from airflows.testing.cluster.plans import PlanRule, PodPlan
from airflows.testing.cluster.samples import indexed_job
from airflows.testing.cluster.settings import Settings, load_settings

__all__ = [
    "KINDS",
    "Cluster",
    "Fault",
    "PlanRule",
    "PodPlan",
    "Settings",
    "indexed_job",
    "load_settings",
]
