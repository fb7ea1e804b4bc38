"""The Databricks backend: trials as serverless runs on AI Runtime. Its SDK is imported in `client`, late."""

from airflows.backends.databricks.backend import DatabricksBackend
from airflows.backends.databricks.settings import DatabricksSettings

__all__ = ["DatabricksBackend", "DatabricksSettings"]
