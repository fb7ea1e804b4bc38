"""A rehearsal: short trials of a sweep, killed and resumed, and what can be concluded from them. Pure.

`airflows.engine.rehearsals` runs it.
"""
