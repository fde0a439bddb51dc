"""In-memory store of signed envelopes."""

from collections.abc import Sequence

from attrs import define, field

from tileferry.domain.errors import IdempotencyConflictError
from tileferry.domain.tiles import SignedEnvelope


@define
class MemoryEnvelopeStore:
    """Stores envelopes in insertion order."""

    _envelopes: dict[str, SignedEnvelope] = field(factory=dict, init=False)

    def save(self, envelope: SignedEnvelope) -> None:
        """Store an envelope; raise if its key already exists with different content."""
        key = envelope.batch.key
        known = self._envelopes.setdefault(key, envelope)
        if known != envelope:
            raise IdempotencyConflictError(
                key=key,
                recorded_fingerprint=known.body_sha256,
                offered_fingerprint=envelope.body_sha256,
            )

    def list_open_envelopes(self, flight_id: str) -> Sequence[SignedEnvelope]:
        """Return the open envelopes of a flight, oldest first."""
        return [each for each in self._envelopes.values() if each.batch.flight_id == flight_id]

    def close(self, envelope: SignedEnvelope) -> None:
        """Delete an envelope."""
        self._envelopes.pop(envelope.batch.key, None)
