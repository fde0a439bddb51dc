"""C12, the operator's tooling: what people and schedulers start."""
