"""``python -m tileferry.entrypoints.cli``."""

from tileferry.entrypoints.cli.main import main

main()
