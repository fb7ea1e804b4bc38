"""What people see of a ranking: without secrets. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflows.hiding import public_overrides
from airflows.ranking import Group, Ranking, Winner


def public_ranking(ranking: Ranking) -> Ranking:
    """Return a ranking without the secrets in its points' overrides."""
    return replace(
        ranking,
        ranked=tuple(map(_public_group, ranking.ranked)),
        winner=_public_winner(ranking.winner),
        knee=_public_winner(ranking.knee),
    )


def _public_group(group: Group) -> Group:
    return replace(group, overrides=public_overrides(group.overrides))


def _public_winner(winner: Winner | None) -> Winner | None:
    if winner is None:
        return None
    return replace(winner, group=_public_group(winner.group), changed=public_overrides(winner.changed))
