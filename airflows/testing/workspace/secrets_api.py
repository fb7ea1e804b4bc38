"""Endpoints of secret scopes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from airflows.testing.workspace.exchange import ApiError, Request, missing
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.world import World


class SecretsApi:
    """`/api/2.0/secrets/…`."""

    def __init__(self, world: World) -> None:
        self._scopes = world.secrets

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        at = "/api/2.0/secrets"
        for method, name, handler in (
            ("POST", "scopes/create", self.create_scope),
            ("GET", "scopes/list", self.scopes),
            ("POST", "put", self.put),
            ("GET", "get", self.get),
            ("GET", "list", self.keys),
            ("POST", "delete", self.delete),
        ):
            router.add(method, f"{at}/{name}", Route(f"secrets/{name}", handler))

    def create_scope(self, request: Request) -> Mapping[str, Any]:
        """Make a scope."""
        name = str(request.json()["scope"])
        if name in self._scopes:
            raise ApiError(400, "RESOURCE_ALREADY_EXISTS", f"Scope {name} already exists!")
        self._scopes[name] = {}
        return {}

    def scopes(self, _request: Request) -> Mapping[str, Any]:
        """List the scopes."""
        return {"scopes": [{"name": name, "backend_type": "DATABRICKS"} for name in self._scopes]}

    def put(self, request: Request) -> Mapping[str, Any]:
        """Set a secret."""
        body = request.json()
        text = body.get("string_value")
        value = base64.b64decode(body["bytes_value"]).decode() if text is None else str(text)
        self._scope(str(body["scope"]))[str(body["key"])] = value
        return {}

    def get(self, request: Request) -> Mapping[str, Any]:
        """Return a secret."""
        scope, key = request.one("scope"), request.one("key")
        value = self._scope(scope).get(key)
        if value is None:
            message = f"Secret does not exist with scope: {scope} and key: {key}"
            raise missing(message)
        return {"key": key, "value": base64.b64encode(value.encode()).decode()}

    def keys(self, request: Request) -> Mapping[str, Any]:
        """List the keys of a scope."""
        return {"secrets": [{"key": key} for key in self._scope(request.one("scope"))]}

    def delete(self, request: Request) -> Mapping[str, Any]:
        """Delete a secret."""
        body = request.json()
        self._scope(str(body["scope"])).pop(str(body["key"]), None)
        return {}

    def _scope(self, name: str) -> dict[str, str]:
        if name not in self._scopes:
            message = f"Scope {name} does not exist!"
            raise missing(message)
        return self._scopes[name]
