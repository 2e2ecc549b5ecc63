"""`python -m ampwatch`: the same as the command."""

from ampwatch.cli import main

main(prog_name="ampwatch")
