"""The `airflows` command: parse, call, render."""

import gc

# What imports make stays: to look through it for garbage again and again takes a tenth of a short command.
gc.set_threshold(20_000, 20, 20)

from airflows.cli.app import main  # noqa: E402 - the threshold is for the imports

__all__ = ["main"]
