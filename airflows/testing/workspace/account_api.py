"""Endpoints about who calls, what he may use, and what he grants."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from airflows.testing.workspace.exchange import (
    Answer,
    ApiError,
    Request,
    User,
    as_answer,
    invalid,
    missing,
    nothing,
)
from airflows.testing.workspace.routing import Route, Router
from airflows.testing.workspace.world import World

_TOKEN_LASTS_S = 3600
_LEVELS = {
    "jobs": {"CAN_VIEW", "CAN_MANAGE_RUN", "CAN_MANAGE", "IS_OWNER"},
    "experiments": {"CAN_READ", "CAN_EDIT", "CAN_MANAGE"},
}


class AccountApi:
    """Users, OAuth, policies, compute options, permissions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.grants: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def add_to(self, router: Router) -> None:
        """Add the endpoints."""
        add = router.add
        add("HEAD", "/", Route("host", lambda _: nothing(HTTPStatus.OK), is_open=True))
        config = Route("config", self.config, is_open=True)
        add("GET", "/.well-known/databricks-config", config)
        oauth = Route("oauth", self.oauth, is_open=True)
        add("GET", "/oidc/.well-known/oauth-authorization-server", oauth)
        add("POST", "/oidc/v1/token", Route("token", self.token, is_open=True))
        add("GET", "/api/2.0/preview/scim/v2/Me", Route("me", self.me))
        add("GET", "/api/2.0/serverless-policies", Route("policies", self.policies))
        options = Route("compute-options", self.compute_options)
        add("GET", "/api/2.0/ai-compute-manager/compute-options", options)
        permissions = "/api/2.0/permissions/{kind}/{id}"
        add("GET", permissions, Route("permissions/get", self.permissions))
        add("PATCH PUT", permissions, Route("permissions", self.grant))

    def config(self, _request: Request) -> Mapping[str, Any]:
        """Say where OAuth is."""
        workspace, host = self._world.settings.workspace_id, self._world.host
        return {"workspace_id": workspace, "oidc_endpoint": f"{host}/oidc"}

    def oauth(self, _request: Request) -> Mapping[str, Any]:
        """Say where OAuth's own endpoints are."""
        host = self._world.host
        return {
            "authorization_endpoint": f"{host}/oidc/v1/authorize",
            "token_endpoint": f"{host}/oidc/v1/token",
        }

    def token(self, request: Request) -> Mapping[str, Any] | Answer:
        """Give a service principal a token."""
        form = {name: values[-1] for name, values in parse_qs(request.body.decode()).items()}
        given = (form.get("client_id", ""), form.get("client_secret", ""))
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            name, _, secret = base64.b64decode(encoded).decode().partition(":")
            given = (name, secret)
        for account in self._world.settings.users:
            if account.client_id and given == (account.client_id, account.client_secret):
                token = f"oauth-{secrets.token_hex(16)}"
                self._world.tokens[token] = User(account.name, account.id)
                return {"access_token": token, "token_type": "Bearer", "expires_in": _TOKEN_LASTS_S}
        problem = {"error": "invalid_client", "error_description": "Client authentication failed"}
        return as_answer(problem, HTTPStatus.UNAUTHORIZED)

    def me(self, request: Request) -> Mapping[str, Any]:
        """Say who calls."""
        return {"id": request.user.id, "userName": request.user.name, "active": True}

    def policies(self, request: Request) -> Mapping[str, Any]:
        """List usage policies whose name contains a text, in pages."""
        wanted = request.one("filter_by.policy_name").lower()
        size, at = request.number("page_size", 100), request.number("page_token")
        found = [
            policy.model_dump(exclude_none=True)
            for policy in self._world.settings.policies
            if wanted in policy.policy_name.lower()
        ]
        following = str(at + size) if at + size < len(found) else ""
        return {"policies": found[at : at + size], "next_page_token": following}

    def compute_options(self, _request: Request) -> Mapping[str, Any]:
        """List what there is to compute on."""
        kinds = self._world.settings.accelerators
        return {"compute_options": [{"hardware_accelerator": kind} for kind in kinds]}

    def permissions(self, request: Request) -> Mapping[str, Any]:
        """Show what was granted on a thing."""
        kind, thing = self._thing(request)
        return {
            "object_id": f"/{kind}/{thing}",
            "object_type": kind.removesuffix("s"),
            "access_control_list": [
                {
                    **{name: value for name, value in grant.items() if name != "permission_level"},
                    "all_permissions": [{"permission_level": grant["permission_level"], "inherited": False}],
                }
                for grant in self.grants.get((kind, thing), ())
            ],
        }

    def grant(self, request: Request) -> Mapping[str, Any]:
        """Grant something on a thing."""
        key = self._thing(request)
        given = request.json().get("access_control_list") or []
        for grant in given:
            level = grant.get("permission_level")
            if level not in _LEVELS[key[0]]:
                message = f"Invalid permission level {level!r} for {key[0]}."
                raise invalid(message)
            who = [name for name in ("user_name", "group_name", "service_principal_name") if grant.get(name)]
            if len(who) != 1:
                message = "Exactly one of user_name, group_name and service_principal_name is needed."
                raise invalid(message)
        before = [] if request.method == "PUT" else self.grants.get(key, [])
        self.grants[key] = [*before, *given]
        return self.permissions(request)

    def _thing(self, request: Request) -> tuple[str, str]:
        kind, thing = request.parts["kind"], request.parts["id"]
        if kind not in _LEVELS:
            message = f"'{kind}' is not a supported object type."
            raise invalid(message)
        if kind == "jobs":
            with self._world.lock:
                runs = {str(run.job_id): run for run in self._world.jobs.runs.values()}
            if thing not in runs:
                message = f"Job {thing} does not exist."
                raise missing(message)
            if runs[thing].user != request.user.name:
                message = f"{request.user.name} does not have Manage permissions on job {thing}."
                raise ApiError(403, "PERMISSION_DENIED", message)
        return kind, thing
