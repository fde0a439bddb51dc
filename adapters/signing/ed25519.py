"""Ed25519 signing keys that live for one session."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tileferry.domain.errors import InvalidStateError

_SEED_BYTES = 32


@define(eq=False)
class _Ed25519Session:
    """Signs while the session is open. Its repr does not show the key."""

    _seed: bytearray = field(repr=False)
    _key: Ed25519PrivateKey | None = field(repr=False)

    @property
    def public_key(self) -> bytes:
        return self._require_key().public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return self._require_key().sign(message)

    def wipe(self) -> None:
        """Overwrite the seed and drop the key; OpenSSL frees its copy with the key object."""
        self._seed[:] = bytes(len(self._seed))
        self._key = None

    def _require_key(self) -> Ed25519PrivateKey:
        if self._key is None:
            raise InvalidStateError(
                subject="signing session", problem="has ended; its key was wiped"
            )
        return self._key


class Ed25519Keys:
    """Creates a new key for each session."""

    @contextmanager
    def open_session(self) -> Iterator[_Ed25519Session]:
        """Create a key and wipe it when the block ends, also after an error."""
        seed = bytearray(secrets.token_bytes(_SEED_BYTES))
        session = _Ed25519Session(seed, Ed25519PrivateKey.from_private_bytes(seed))
        try:
            yield session
        finally:
            session.wipe()
