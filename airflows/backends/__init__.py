"""Backends: places a trial can run."""
