"""`python -m airflows.cli`."""

from airflows.cli.app import main

main()
