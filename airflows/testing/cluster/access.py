"""Who asks, and what they may do: tokens, RBAC, access reviews."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from airflows.testing.cluster.kinds import Kind
from airflows.testing.cluster.messages import ApiError, Json, forbidden
from airflows.testing.cluster.settings import Account, Rule


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to do.

    Attributes:
        verb: such as `create`.
        resource: such as `jobs` or `pods/log`.
        group: empty for the core group.
        namespace: empty for what has none, or all.
        name: of the object, if there is one.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def qualified(self) -> str:
        """Such as `jobs.batch`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(slots=True)
class _Ban:
    verb: str
    resource: str
    namespace: str

    def fits(self, asked: Asked) -> bool:
        return (
            fnmatchcase(asked.verb, self.verb)
            and fnmatchcase(asked.qualified, self.resource)
            and fnmatchcase(asked.namespace, self.namespace)
        )


@dataclass(slots=True)
class Access:
    """Users by their tokens, and what is forbidden to all of them."""

    users: dict[str, Account] = field(default_factory=dict)
    _bans: list[_Ban] = field(default_factory=list)

    def forbid(self, verb: str, resource: str, namespace: str = "*") -> None:
        """Take a right from everybody: globs, such as `create` and `jobs.batch`."""
        self._bans.append(_Ban(verb, resource, namespace))

    def allow(self) -> None:
        """Take back all that was forbidden."""
        self._bans.clear()

    def expire(self, token: str = "") -> None:
        """Let a token be good no longer; the first when none is named."""
        self.users.pop(token or next(iter(self.users), ""), None)

    def user(self, authorization: str) -> Account:
        """Return who asks.

        Raises:
            ApiError: 401.
        """
        found = self.users.get(authorization.removeprefix("Bearer "))
        if found is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return found

    def may(self, user: Account, asked: Asked) -> bool:
        """Whether somebody may do something."""
        if any(ban.fits(asked) for ban in self._bans):
            return False
        return user.rules is None or any(_grants(rule, asked) for rule in user.rules)

    def check(self, user: Account, asked: Asked, kind: Kind) -> None:
        """Refuse what is not allowed.

        Raises:
            ApiError: 403.
        """
        if self.may(user, asked):
            return
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        why = (
            f'User "{user.name}" cannot {asked.verb} resource "{asked.resource}" '
            f'in API group "{asked.group}" {where}'
        )
        raise forbidden(kind.resource, kind.group, asked.name, why)

    def review(self, user: Account, body: Json) -> Json:
        """Return a SelfSubjectAccessReview with its answer."""
        given = (body.get("spec") or {}).get("resourceAttributes") or {}
        sub = given.get("subresource", "")
        asked = Asked(
            given.get("verb", ""),
            given.get("resource", "") + (f"/{sub}" if sub else ""),
            given.get("group", ""),
            given.get("namespace", ""),
            given.get("name", ""),
        )
        status: Json = {"allowed": self.may(user, asked)}
        return {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": body.get("spec") or {},
            "status": status,
        }


def _grants(rule: Rule, asked: Asked) -> bool:
    return (
        any(fnmatchcase(asked.verb, verb) for verb in rule.verbs)
        and any(fnmatchcase(asked.qualified, resource) for resource in rule.resources)
        and any(fnmatchcase(asked.namespace, namespace) for namespace in rule.namespaces)
    )
