"""Ed25519 signatures."""

from tileferry.domain.lazy_imports import export_lazily

with export_lazily(globals()):
    from tileferry.adapters.signing.ed25519 import Ed25519KeyFile, Ed25519Keys

__all__ = ["Ed25519KeyFile", "Ed25519Keys"]
