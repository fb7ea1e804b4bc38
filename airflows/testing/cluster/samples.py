"""A manifest to try the fake cluster with, and requests as they go over the wire."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from airflows.testing.cluster.messages import Json
from airflows.testing.cluster.patching import MERGE


def indexed_job(name: str, nodes: int = 1, *, pod: Json | None = None, **spec: Any) -> Json:
    """Return an Indexed Job that is not tried again.

    Args:
        name: of the Job.
        nodes: how many pods.
        pod: fields of the pods' spec; `main` among them are fields of the container.
        spec: fields of the Job's spec.
    """
    given = dict(pod or {})
    main = {"name": "main", "image": "img:1", "command": ["true"], **given.pop("main", {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"trial": name}},
        "spec": {
            "completions": nodes,
            "parallelism": nodes,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"trial": name}},
                "spec": {"restartPolicy": "Never", "containers": [main], **given},
            },
            **spec,
        },
    }


def send(
    url: str,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, str], bytes]:
    """Send a request; return status, headers (names in lower case) and body of the answer, whatever they are.

    Raises:
        OSError: none came.
    """
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    kind = MERGE if method == "PATCH" else "application/json"
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": kind, **(headers or {})})
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, told, answer.read()
    finally:
        connection.close()
