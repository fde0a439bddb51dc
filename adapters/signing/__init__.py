"""Ed25519 signatures."""

from tileferry.adapters.signing.ed25519 import Ed25519Keys

__all__ = ["Ed25519Keys"]
