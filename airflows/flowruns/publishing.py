"""A sweep's artifacts in Prefect, each kept as it is to be now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
)

from airflows.errors import AirflowsError
from airflows.flowruns.looking import look
from airflows.flowruns.texts import Artifact, artifacts_of


class ArtifactBoard:
    """The artifacts of a flow run. A retry finds and updates those of the attempt before."""

    def __init__(self, client: PrefectClient, flow_run_id: UUID) -> None:
        self._client = client
        self._flow_run_id = flow_run_id
        self._ids: dict[str, UUID] = {}
        self._shown: dict[str, Artifact] = {}

    async def put(self, artifacts: Iterable[Artifact]) -> None:
        """Create or update those artifacts that are not yet as they are to be."""
        for artifact in artifacts:
            if self._shown.get(artifact.key) == artifact:
                continue
            there = self._ids.get(artifact.key) or await self._find(artifact.key)
            if there is None:
                there = await self._create(artifact)
            else:
                # A new object: the client leaves out what was not set.
                update = ArtifactUpdate(data=artifact.data, description=artifact.description)
                await self._client.update_artifact(there, update)
            self._ids[artifact.key], self._shown[artifact.key] = there, artifact

    async def _create(self, artifact: Artifact) -> UUID:
        made = await self._client.create_artifact(
            ArtifactCreate(
                key=artifact.key,
                type=artifact.kind,
                data=artifact.data,
                description=artifact.description,
                flow_run_id=self._flow_run_id,
            )
        )
        return made.id

    async def _find(self, key: str) -> UUID | None:
        wanted = ArtifactFilter(
            key=ArtifactFilterKey(any_=[key]),
            flow_run_id=ArtifactFilterFlowRunId(any_=[self._flow_run_id]),
        )
        found: list[Any] = await self._client.read_artifacts(artifact_filter=wanted, limit=1)
        return found[0].id if found else None


class SweepArtifacts:
    """Shows a sweep as artifacts of a flow run."""

    def __init__(self, board: ArtifactBoard, home: Path, sweep: str) -> None:
        self._board = board
        self._home = home
        self.sweep = sweep

    async def show(self) -> None:
        """Bring the artifacts to where the sweep stands; nothing while it is not in the ledger yet."""
        try:
            artifacts = await asyncio.to_thread(lambda: artifacts_of(look(self._home, self.sweep)))
        except AirflowsError:
            return
        await self._board.put(artifacts)
