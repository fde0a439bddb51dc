"""``make demo``."""

from tileferry.entrypoints.demo.story import main

main()
