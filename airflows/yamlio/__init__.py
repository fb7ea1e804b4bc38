"""YAML as AI Runtime's CLI reads it, with line numbers; and written so that all YAML readers agree."""

from airflows.yamlio.build import Dialect
from airflows.yamlio.document import Document, Notice
from airflows.yamlio.emit import dump
from airflows.yamlio.read import parse, parse_scalar, parse_value, read

__all__ = ["Dialect", "Document", "Notice", "dump", "parse", "parse_scalar", "parse_value", "read"]
