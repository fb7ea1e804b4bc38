"""Bringing the tables of an older airflows to what this one knows, in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from airflows.ledger import schema

if TYPE_CHECKING:
    from alembic.operations import Operations


def upgrade(connection: sa.Connection, found: int) -> None:
    """Change the tables step by step, and write the version down.

    Args:
        connection: in a transaction; whoever fails in it leaves the ledger as it was.
        found: version of the tables.
    """
    # Seldom needed, and a tenth of a second to import.
    from alembic.migration import MigrationContext  # noqa: PLC0415
    from alembic.operations import Operations  # noqa: PLC0415

    operations = Operations(MigrationContext.configure(connection))
    for step in _STEPS[found - 1 :]:
        step(operations)
    connection.execute(
        schema.meta.update().where(schema.meta.c.key == "schema").values(value=str(schema.VERSION))
    )


def _to_2(operations: Operations) -> None:
    """Plans, edits, and packed trials, which use a share of an accelerator."""
    for name, kind in (("plan", sa.String(64)), ("edits", sa.Text())):
        operations.add_column("sweeps", sa.Column(name, kind, nullable=False, server_default=""))
    # SQLite keeps a number as it is given, and cannot change a column.
    if operations.get_bind().dialect.name == "postgresql":
        operations.alter_column("attempts", "accelerators", type_=sa.Double())


_STEPS: Sequence[Callable[[Operations], None]] = (_to_2,)
"""The first leads from version 1 to 2."""
