"""Which handler a path goes to."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflows.testing.workspace.exchange import Handler

_PART = re.compile(r"\{(\w+)(\*?)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """One endpoint.

    Attributes:
        name: short, for faults and counts, such as `jobs/runs/submit`.
        handler: answers.
        is_open: asks for no token.
    """

    name: str
    handler: Handler
    is_open: bool = False


class Router:
    """All endpoints. A pattern such as `/files/{path*}` catches parts; one with a star takes slashes too."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str], Route] = {}
        self._patterns: list[tuple[str, re.Pattern[str], Route]] = []

    def add(self, methods: str, pattern: str, route: Route) -> None:
        """Add an endpoint for one or more methods, separated by spaces."""
        for method in methods.split():
            if "{" not in pattern:
                self._exact[method, pattern] = route
                continue
            expression = _PART.sub(
                lambda part: f"(?P<{part[1]}>{'.*' if part[2] else '[^/]+'})",
                pattern.replace(".", r"\."),
            )
            self._patterns.append((method, re.compile(expression, re.DOTALL), route))

    def names(self) -> list[str]:
        """Return the short names of all endpoints."""
        routes = [*self._exact.values(), *(route for _, _, route in self._patterns)]
        return sorted({route.name for route in routes})

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a path with what its pattern caught."""
        exact = self._exact.get((method, path))
        if exact is not None:
            return exact, {}
        for known, expression, route in self._patterns:
            caught = expression.fullmatch(path) if known == method else None
            if caught:
                return route, caught.groupdict()
        return None
