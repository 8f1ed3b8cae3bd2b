"""`python -m forebay` is the command line too."""

from forebay.cli.main import main

main()
