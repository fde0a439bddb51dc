"""Uploading what a flight captured: what operators' tooling calls, and what that needs."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from tileferry.domain.tiles import (
    Batch,
    FlightRecord,
    PerTileStatus,
    SignedEnvelope,
    TileMetadata,
    UploadBatchReport,
    UploadRequest,
)


@runtime_checkable
class TileUploader(Protocol):
    """Brings a flight's captured tiles to the provider."""

    def upload_pending_tiles(self, request: UploadRequest) -> UploadBatchReport:
        """Send what waits, and say what the provider made of it."""
        ...

    def enumerate_pending_tiles(self, flight_id: str) -> Iterator[TileMetadata]:
        """Yield what waits, without sending any of it."""
        ...

    def confirm_flight_state(self) -> None:
        """Refuse unless the aircraft is on the ground."""
        ...


class FlightRecords(Protocol):
    """Tells where the aircraft is."""

    def get_current(self) -> FlightRecord:
        """Return the record that counts."""
        ...


class SigningSession(Protocol):
    """A key that lives as long as its session."""

    @property
    def public_key(self) -> bytes:
        """The public half, raw."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return a signature."""
        ...


class SigningKeys(Protocol):
    """Makes keys."""

    def open_session(self) -> AbstractContextManager[SigningSession]:
        """Make a key for one session; when the block ends, however it does, the key is wiped."""
        ...


class EnvelopeStore(Protocol):
    """Keeps what was signed until its answer is recorded, so that a crash can be repaired."""

    def save(self, envelope: SignedEnvelope) -> None:
        """Keep an envelope, durably. A key that is known with other content is refused."""
        ...

    def list_open_envelopes(self, flight_id: str) -> Sequence[SignedEnvelope]:
        """Return those of a flight whose answers are not recorded, oldest first."""
        ...

    def close(self, envelope: SignedEnvelope) -> None:
        """Forget an envelope, durably: its answer is recorded."""
        ...


class UploadProvider(Protocol):
    """The provider's side of an upload: one call; failures are ``SatelliteProviderError``."""

    @property
    def path(self) -> str:
        """Where batches are posted to; the signature covers it."""
        ...

    def iter_body(self, batch: Batch, contents: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the body of a batch as it is posted; the signature covers its hash.

        ``contents`` are the bytes of its tiles, in their order. A repeat has the same bytes.
        """
        ...

    def post_batch(
        self, envelope: SignedEnvelope, contents: Iterable[bytes]
    ) -> tuple[PerTileStatus, ...]:
        """Send a batch and return the answer for each tile, in the batch's order."""
        ...
