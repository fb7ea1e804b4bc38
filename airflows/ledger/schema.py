"""The ledger's tables. Secrets are stored as references only; times are seconds since the epoch, UTC."""

from __future__ import annotations

import sqlalchemy as sa

VERSION = 2

metadata = sa.MetaData()

meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

sweeps = sa.Table(
    "sweeps",
    metadata,
    sa.Column("id", sa.String(80), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, index=True),
    sa.Column("definition", sa.String(64), nullable=False, index=True),
    sa.Column("instance", sa.String(200), nullable=False, default=""),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("directory", sa.Text, nullable=False),
    sa.Column("backend", sa.String(40), nullable=False),
    sa.Column("root", sa.Text, nullable=False, default=""),
    sa.Column("code", sa.String(64), nullable=False, default=""),
    sa.Column("single", sa.Boolean, nullable=False, default=False),
    sa.Column("wish", sa.String(10), nullable=False),
    sa.Column("requests", sa.Integer, nullable=False, default=0),
    sa.Column("state", sa.String(12), nullable=False),
    sa.Column("message", sa.Text, nullable=False, default=""),
    sa.Column("halted", sa.Text, nullable=False, default=""),
    sa.Column("expanded", sa.Integer, nullable=False, default=0),
    sa.Column("exhausted", sa.Boolean, nullable=False, default=False),
    sa.Column("total", sa.Integer),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("resumed_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("tracking_uri", sa.Text, nullable=False, default=""),
    sa.Column("experiment_id", sa.String(64), nullable=False, default=""),
    sa.Column("parent_run_id", sa.String(64), nullable=False, default=""),
    sa.Column("winner", sa.JSON),
    sa.Column("lease_owner", sa.Text, nullable=False, default=""),
    sa.Column("lease_token", sa.String(64), nullable=False, default=""),
    sa.Column("lease_since", sa.Double),
    sa.Column("lease_until", sa.Double),
    sa.Column("nonce", sa.String(32), nullable=False, default=""),
    sa.Column("doubt_until", sa.Double, nullable=False, default=0.0),
    sa.Column("host", sa.Text, nullable=False, default=""),
    sa.Column("plan", sa.String(64), nullable=False, default=""),
    sa.Column("edits", sa.Text, nullable=False, default=""),
)

points = sa.Table(
    "points",
    metadata,
    sa.Column("sweep", sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("overrides", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("memo", sa.Text),
    sa.Column("same_as", sa.Integer),
    sa.UniqueConstraint("sweep", "digest"),
)

trials = sa.Table(
    "trials",
    metadata,
    sa.Column("sweep", sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("point", sa.Integer, nullable=False),
    sa.Column("replicate", sa.Integer, nullable=False),
    sa.Column("state", sa.String(12), nullable=False),
    sa.Column("reason", sa.String(20), nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("not_before", sa.Double, nullable=False),
    sa.Column("backend", sa.String(40), nullable=False),
    sa.Column("handle", sa.Text),
    sa.Column("batch", sa.String(80), nullable=False),
    sa.Column("claimed_at", sa.Double),
    sa.Column("submitted_at", sa.Double),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("exit_code", sa.Integer),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("resumed_from", sa.Text, nullable=False),
    sa.Column("errors", sa.Integer, nullable=False),
    sa.Column("stalled", sa.Integer, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
    sa.Column("checkpoint", sa.Text, nullable=False),
    sa.Column("checkpoint_step", sa.BigInteger, nullable=False),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("closed", sa.Boolean, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("value_step", sa.BigInteger),
    sa.Column("raw_value", sa.Text, nullable=False),
    sa.CheckConstraint(
        "handle IS NOT NULL OR state NOT IN ('queued', 'running', 'stopping')", name="handle_where_it_runs"
    ),
    sa.Index("trials_by_state", "sweep", "state", "number"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("sweep", sa.String(80), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.String(64), nullable=False, unique=True),
    sa.Column("backend", sa.String(40), nullable=False),
    sa.Column("batch", sa.String(80), nullable=False),
    sa.Column("handle", sa.Text),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("state", sa.String(12), nullable=False),
    sa.Column("reason", sa.String(20), nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("exit_code", sa.Integer),
    sa.Column("claimed_at", sa.Double),
    sa.Column("submitted_at", sa.Double),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("resumed_from", sa.Text, nullable=False),
    sa.Column("code", sa.String(64), nullable=False),
    sa.Column("accelerators", sa.Double, nullable=False),
    sa.ForeignKeyConstraint(["sweep", "number"], ["trials.sweep", "trials.number"], ondelete="CASCADE"),
)

scores = sa.Table(
    "scores",
    metadata,
    sa.Column("sweep", sa.String(80), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("metric", sa.String(250), primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("value", sa.Text, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("sweep", sa.String(80), nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("kind", sa.String(12), nullable=False),
    sa.Column("from_state", sa.String(12), nullable=False),
    sa.Column("to_state", sa.String(12), nullable=False),
    sa.Column("reason", sa.String(20), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index("events_by_trial", "sweep", "number", "id"),
)
