"""C12, the operator's tooling: the CLI, the worker, the Python API, and their wiring."""
