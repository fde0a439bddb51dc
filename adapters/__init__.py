"""The ports' implementations, one folder a technology. Adapters do not import each other."""
