"""Reading shell scripts: as a tree, and what their variables hold. Pure; nothing is ever run."""
