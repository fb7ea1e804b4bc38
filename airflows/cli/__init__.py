"""The `airflows` command: parse, call, render."""

from airflows.cli.app import main

__all__ = ["main"]
