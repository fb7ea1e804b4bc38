"""Endpoints of AI Runtime itself: checking a submission, the index of runs, logs, images."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from airflows.testing.workspace.exchange import ApiError, Request, invalid, missing
from airflows.testing.workspace.jobs import not_found
from airflows.testing.workspace.logbook import Line
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.runs import Run
from airflows.testing.workspace.settings import Image
from airflows.testing.workspace.submitting import compute_problem
from airflows.testing.workspace.world import World

_AT = "/api/2.0/ai-training"
_INDEX_PAGE = 50
_NANO = 1_000_000_000


class TrainingApi:
    """`/api/2.0/ai-training/…`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        router.add("POST", f"{_AT}/config:validate", Route("validate", self.validate))
        router.add("GET", f"{_AT}/workflows", Route("workflows", self.workflows))
        router.add("GET", f"{_AT}/workflows/by-run-id/{{id}}/logs", Route("logs", self.logs))

    def validate(self, request: Request) -> Mapping[str, Any]:
        """Say what is wrong with a submission before it is one."""
        task = request.json().get("task") or {}
        experiment = str(task.get("experiment", ""))
        errors = [
            error.model_dump(include={"path", "message", "code"})
            for error in self._world.settings.validation_errors
            if fnmatchcase(experiment, error.experiment)
        ]
        for deployment in task.get("deployments") or ():
            problem = compute_problem(deployment.get("compute") or {}, self._world.settings)
            if problem:
                errors.append({"path": "compute", "message": problem, "code": "INVALID_COMPUTE"})
        return {"errors": errors} if errors else {}

    def workflows(self, request: Request) -> Mapping[str, Any]:
        """List the caller's own runs, in pages."""
        size, at = request.number("page_size", _INDEX_PAGE), request.number("page_token")
        quirky = self._world.settings.jobs.quirky_index
        with self._world.lock:
            own = [
                run
                for run in reversed(self._world.jobs.runs.values())
                if run.user == request.user.name and run.ai_task is not None and not run.is_deleted
                and not (request.flag("active_only") and run.ended_at is not None)
            ]  # fmt: skip
        # A quirky page begins with the run that the one before ended with.
        page = own[max(0, at - 1) if quirky else at : at + size]
        following = str(at + size) if at + size < len(own) else ""
        if quirky and not following and at:
            following = str(at)
        entries = [_indexed(run, as_numbers=quirky) for run in page]
        return {"training_workflows": entries, "next_page_token": following}

    def logs(self, request: Request) -> Mapping[str, Any]:
        """Return what a node printed, in pages."""
        lines = self._lines(request)
        manners = self._world.settings.logs
        size, at = min(request.number("page_size", manners.page_size), 10_000), request.number("page_token")
        records = []
        for line in lines[at : at + size]:
            record = self._record(line)
            records.append(record)
            if manners.duplicate_every and line.number % manners.duplicate_every == 0:
                records.append(record)
        following = str(at + size) if at + size < len(lines) else ""
        return {"log_records": records, "next_page_token": following}

    def _lines(self, request: Request) -> list[Line]:
        text = request.parts["id"]
        with self._world.lock:
            run = self._world.jobs.runs.get(int(text)) if text.isdecimal() else None
            if run is None or run.is_deleted:
                raise not_found(int(text) if text.isdecimal() else 0, 400)
            if run.user != request.user.name:
                message = f"User {request.user.name} cannot see run {run.id}."
                raise ApiError(403, "PERMISSION_DENIED", message)
            number = request.number("ref.attempt_number", run.last.number)
            if not 0 <= number < len(run.attempts):
                message = f"Run {run.id} has no attempt {number}."
                raise invalid(message)
            book, now = run.attempts[number].logs, self._world.clock.now()
        if self._world.settings.logs.is_empty:
            return []
        since, until = request.number("from") * _NANO, request.number("to") * _NANO
        lines = [
            line
            for line in book.lines(request.number("filter.node_index"), now)
            if line.nano >= since and (not until or line.nano <= until)
        ]
        return lines if request.one("ascending", "true").lower() == "true" else lines[::-1]

    def _record(self, line: Line) -> dict[str, Any]:
        manners = self._world.settings.logs
        record = {
            "time_unix_nano": str(line.nano) if manners.times_as_text else line.nano,
            "body": line.body,
            "node_index": line.node,
        }
        return {**record, "record_id": f"{line.node}-{line.number}"} if manners.record_ids else record


class ImagesApi:
    """Docker images."""

    def __init__(self, world: World) -> None:
        self._images = {image.docker_image_url: image for image in world.settings.images}
        self._asked: dict[str, int] = {}

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        at = "/api/2.0/ai-compute-manager"
        router.add("GET", f"{at}/images:get", Route("images:get", self.get))
        router.add("GET", f"{at}/images:checkImageAccess", Route("images:checkImageAccess", self.access))
        router.add("POST", f"{at}/images", Route("images", self.register))

    def get(self, request: Request) -> Mapping[str, Any]:
        """Say how far an image is; each time it is asked for, it may be further."""
        image = self._image(request.one("docker_image_url"))
        asked = self._asked.get(image.docker_image_url, 0)
        self._asked[image.docker_image_url] = asked + 1
        return _shown(image, image.states[min(asked, len(image.states) - 1)])

    def access(self, request: Request) -> Mapping[str, Any]:
        """Say whether an image can be had without credentials."""
        url = request.one("docker_image_url")
        image = self._images.get(url)
        return {"publicly_accessible": image.publicly_accessible if image else True}

    def register(self, request: Request) -> Mapping[str, Any]:
        """Take an image in, anew if it is there."""
        body = request.json()
        url = str(body.get("docker_image_url") or "")
        if not url:
            message = "docker_image_url is required."
            raise invalid(message)
        image = self._images.setdefault(url, Image(docker_image_url=url))
        if not image.publicly_accessible and not (
            body.get("credentials_scope") and body.get("credentials_key")
        ):
            message = f"Image {url} cannot be accessed without credentials."
            raise ApiError(403, "PERMISSION_DENIED", message)
        self._asked[url] = 0
        return {"image": _shown(image, image.states[0])}

    def _image(self, url: str) -> Image:
        if url not in self._images:
            message = f"Image {url} is not registered."
            raise missing(message, "NOT_FOUND")
        return self._images[url]


def _shown(image: Image, state: str) -> dict[str, Any]:
    digest = image.manifest_sha256 or hashlib.sha256(image.docker_image_url.encode()).hexdigest()
    return {
        "docker_image_url": image.docker_image_url,
        "state": state,
        "status_message": image.status_message,
        "manifest_sha256": digest,
    }


def _indexed(run: Run, *, as_numbers: bool) -> dict[str, Any]:
    if as_numbers:
        return {"job_run_id": run.id, "submit_time": {"seconds": int(run.created_at), "nanos": 0}}
    moment = datetime.fromtimestamp(int(run.created_at), UTC)
    return {"job_run_id": str(run.id), "submit_time": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}
