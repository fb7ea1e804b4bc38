"""Driving sweeps: the tick, what it keeps in memory, how sweeps start and end."""
