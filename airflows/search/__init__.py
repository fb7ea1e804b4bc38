"""How points are chosen from a space: counted off (`enumerate`) or drawn (`draws`)."""
