"""Packs on disk, and the keys that sign them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from attrs import frozen

from tileferry.domain.packs import PackEntry, PackHeader


class PackSigner(Protocol):
    """The signing key of this machine."""

    @property
    def public_key(self) -> str:
        """The public key, in hexadecimal digits."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        ...

    def verify(self, public_key: str, message: bytes, signature: bytes) -> bool:
        """Return whether a signature is that of a key."""
        ...


class PackReader(Protocol):
    """A pack. A defect raises ``ArchiveError``."""

    @property
    def place(self) -> str:
        """The name of the pack, for people."""
        ...

    def read_header(self) -> PackHeader:
        """Return the header; nothing is verified."""
        ...

    def iter_entries(self) -> Iterator[tuple[PackEntry, bytes]]:
        """Yield each entry with its content."""
        ...

    def verify(self, is_signed_by: Callable[[str, bytes, bytes], bool]) -> str:
        """Read every byte; return the sha256 of the pack, or raise if any byte is wrong.

        The function is given public key, message and signature.
        """
        ...


class PackDraft(Protocol):
    """A pack that is being written under a temporary name."""

    def add(self, entry: PackEntry, content: bytes) -> None:
        """Write an entry; entries must come in the order of their ``sort_key``."""
        ...

    def seal(self, sign: Callable[[bytes], bytes]) -> PackReader:
        """Sign the pack, make it durable, and return a reader of it."""
        ...

    def publish(self) -> None:
        """Move the pack to its final name, durably."""
        ...


class PackTarget(Protocol):
    """The destination of a pack."""

    @property
    def place(self) -> str:
        """The name of the pack, for people."""
        ...

    def open_draft(self, header: PackHeader) -> AbstractContextManager[PackDraft]:
        """Open a draft; it is deleted at the end of the block unless it was published."""
        ...


@frozen(kw_only=True)
class PeerReport:
    """What another machine says after it applied a pack."""

    is_go: bool
    tiles_imported: int
    bytes_imported: int
    entries_refused: int


class PackFolder(Protocol):
    """A folder for packs on their way to another machine."""

    def build_target(self, name: str) -> PackTarget:
        """Return the destination of a pack."""
        ...

    def open_pack(self, name: str) -> PackReader:
        """Return a pack that was created."""
        ...


class PackPeer(Protocol):
    """Another machine with tileferry."""

    def fetch_inventory(self, like: str, name: str) -> None:
        """Store an inventory of the areas of the pack ``like`` in the folder, under a name."""
        ...

    def apply(self, name: str) -> PeerReport:
        """Send a pack of the folder, and have it applied."""
        ...
