"""Batches of captured tiles, posted to the provider."""

import base64
from collections.abc import Iterable

import httpx
from attrs import define, evolve, field

from tileferry.adapters.http.deadlines import Outgoing, sent_within
from tileferry.adapters.http.errors import answered
from tileferry.adapters.http.lanes import HttpxAnswer
from tileferry.adapters.http.provider import TILES_PATH
from tileferry.adapters.http.refusals import key_of, refusal_of
from tileferry.adapters.http.responses import ResponseLimits, body_of, check_content_type
from tileferry.application.ports.clock import Clock
from tileferry.application.transfers.provider_calls import schema_error
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import (
    PerTileStatus,
    SendingLimits,
    SignedEnvelope,
    parse_upload_answer,
)

_OK = 200
_ANSWER_BYTES_MAX = 4 * 1024 * 1024
_LEEWAY_S = 1.0


@define(kw_only=True)
class HttpUploadProvider:
    """Posts through a client that knows the address and the key."""

    client: httpx.Client
    clock: Clock
    limits: ResponseLimits = field(factory=ResponseLimits)
    sending: SendingLimits = field(factory=SendingLimits)
    path: str = TILES_PATH

    def post_batch(
        self, envelope: SignedEnvelope, contents: Iterable[bytes]
    ) -> tuple[PerTileStatus, ...]:
        """Send a batch, streamed, and read what the provider made of each tile."""
        url = f"{str(self.client.base_url).rstrip('/')}{self.path}"
        return answered(
            lambda: sent_within(
                self.sending.deadline_s(envelope.batch.size),
                self.limits.deadline_s + _LEEWAY_S,  # what is merely slow is told so before that
                lambda outgoing: self._posted(envelope, contents, outgoing),
            ),
            lambda: url,
            secret=key_of(self.client),
        )

    @property
    def _patience(self) -> httpx.Timeout:
        """Be as patient with the answer's first byte as with all of it.

        What was sent may lie in this machine's buffers for a minute, where the link is slow, and
        the provider has a whole batch to look at.
        """
        usual = self.client.timeout
        return httpx.Timeout(
            connect=usual.connect, read=self.limits.deadline_s, write=usual.write, pool=usual.pool
        )

    def _posted(
        self, envelope: SignedEnvelope, contents: Iterable[bytes], outgoing: Outgoing
    ) -> tuple[PerTileStatus, ...]:
        batch = envelope.batch
        request = self.client.build_request(
            "POST",
            self.path,
            content=outgoing.body(batch.body(contents)),
            headers={
                "Accept-Encoding": "identity",
                "Content-Type": f"multipart/form-data; boundary={batch.boundary}",
                "Content-Length": str(batch.size),
                "Idempotency-Key": batch.key,
                "X-Flight-Id": batch.flight_id,
                "X-Timestamp": envelope.timestamp,
                "X-Public-Key": base64.b64encode(envelope.public_key).decode(),
                "X-Signature": base64.b64encode(envelope.signature).decode(),
            },
            timeout=self._patience,
        )
        response = self.client.send(request, stream=True, follow_redirects=False)
        begun_s = self.clock.monotonic()  # how fast it comes is judged from here
        answer = HttpxAnswer(response)
        try:
            if answer.status != _OK:
                raise refusal_of(answer, key_of(self.client), self.clock)
            check_content_type(answer, family="application/json")
            content = body_of(
                answer,
                bytes_max=_ANSWER_BYTES_MAX,
                limits=self.limits,
                clock=self.clock,
                started_s=begun_s,
            )
            return parse_upload_answer(content, batch, bytes_max=_ANSWER_BYTES_MAX)
        except InvalidValueError as error:
            raise evolve(schema_error(error), url=answer.url) from None
        finally:
            response.close()
