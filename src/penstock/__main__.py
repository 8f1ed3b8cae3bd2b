"""`python -m penstock` is the command line too."""

from penstock.cli.main import main

main()
