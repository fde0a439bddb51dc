"""Ed25519 signing keys: one that lasts for a session, and one in a file."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, field
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from tileferry.domain.errors import InvalidStateError, StorageError

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


@define(eq=False)
class Ed25519KeyFile:
    """A key in a file of mode 0600, which is created when it is first needed."""

    path: Path
    _key: Ed25519PrivateKey | None = field(default=None, init=False, repr=False)

    @property
    def public_key(self) -> str:
        return self._load().public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        return self._load().sign(message)

    @staticmethod
    def verify(public_key: str, message: bytes, signature: bytes) -> bool:
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
            key.verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def _load(self) -> Ed25519PrivateKey:
        if self._key is None:
            try:
                seed = self._read() or self._create()
            except OSError as error:
                raise StorageError(
                    action="read",
                    path=str(self.path),
                    problem=error.strerror or str(error),
                    remedy="set pack.key_file to a file that this user can read and write",
                ) from error
            self._key = Ed25519PrivateKey.from_private_bytes(seed)
        return self._key

    def _read(self) -> bytes | None:
        try:
            # Non-blocking: opening a pipe without a writer would wait forever.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            found, content = os.fstat(descriptor), os.read(descriptor, _SEED_BYTES + 1)
        finally:
            os.close(descriptor)
        is_private = found.st_uid == os.geteuid() and not found.st_mode & (
            stat.S_IRWXG | stat.S_IRWXO
        )
        if not is_private or not stat.S_ISREG(found.st_mode) or len(content) != _SEED_BYTES:
            raise StorageError(
                action="use",
                path=str(self.path),
                problem="is not a key of 32 bytes with mode 0600 that belongs to this user",
                remedy="set its mode to 0600, or remove it to create a new key",
            )
        return content

    def _create(self) -> bytes:
        """Create the file; if another process was faster, use its key."""
        seed = secrets.token_bytes(_SEED_BYTES)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor
                file.write(seed)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, self.path)
        finally:
            draft.unlink()
        found = self._read()
        if found is None:  # a dangling link: each run would create another key
            raise FileNotFoundError(errno.ENOENT, "is a link to a file that does not exist")
        return found
