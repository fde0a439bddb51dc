"""Upload of captured tiles: the uploader, and the stores, keys and provider that it needs."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from tileferry.domain.lazy_imports import import_on_call

with import_on_call(globals()):  # for annotations
    from tileferry.domain.tiles import (
        Batch,
        FlightRecord,
        PerTileStatus,
        SignedEnvelope,
        TileId,
        TileMetadata,
        UploadBatchReport,
        UploadRequest,
    )


@runtime_checkable
class TileUploader(Protocol):
    """Uploads a flight's captured tiles to the provider."""

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        """Send the pending tiles, and report the provider's answers."""
        ...

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield the pending tiles without sending them."""
        ...

    def confirm_flight_state(self) -> None:
        """Refuse unless the aircraft is on the ground."""
        ...


class FlightRecords(Protocol):
    """The records of the aircraft's state."""

    def get_current(self) -> FlightRecord:
        """Return the current record."""
        ...


class SigningSession(Protocol):
    """A signing key that exists only during its session."""

    @property
    def public_key(self) -> bytes:
        """The raw public key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        ...


class SigningKeys(Protocol):
    """Creates signing keys."""

    def open_session(self) -> AbstractContextManager[SigningSession]:
        """Create a key for one session; it is always wiped at the end of the block."""
        ...


class EnvelopeStore(Protocol):
    """Stores signed envelopes until their answers are recorded, so a re-run can repeat them.

    It is in the same database as the metadata of their tiles.
    """

    def save(self, envelope: SignedEnvelope) -> None:
        """Store an envelope durably. A known key with different content is refused."""
        ...

    def list_open_envelopes(self, flight_id: str) -> Sequence[SignedEnvelope]:
        """Return a flight's envelopes without recorded answers, oldest first."""
        ...

    def exchange(
        self,
        answered: SignedEnvelope,
        acknowledged: Sequence[TileId],
        following: SignedEnvelope | None,
        *,
        uncounted: Collection[TileId],
    ) -> None:
        """Record an answer and store the next envelope durably: all of it or nothing.

        The acknowledged tiles become uploaded, as ``mark_uploaded`` of the metadata store makes
        them. The answered envelope is deleted, unless some of its rejections are ``uncounted``:
        then it stays with them, and is not sent again.
        """
        ...

    def close(self, envelope: SignedEnvelope) -> None:
        """Delete an envelope durably, after its answer is recorded."""
        ...


class UploadProvider(Protocol):
    """The provider's upload API. Failures raise ``SatelliteProviderError``."""

    @property
    def path(self) -> str:
        """The path to which batches are posted; the signature covers it."""
        ...

    def iter_body(self, batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the request body of a batch; the signature covers its hash.

        ``contents`` are the bytes of its tiles, in order. A repeated call yields the same bytes.
        """
        ...

    def post_batch(
        self, envelope: SignedEnvelope, contents: Iterable[bytes]
    ) -> tuple[PerTileStatus, ...]:
        """Send a batch and return the answer for each tile, in the batch's order."""
        ...
