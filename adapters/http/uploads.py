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
                clock=self.clock,
            ),
            lambda: url,
            secret=key_of(self.client),
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
        )
        response = self.client.send(request, stream=True, follow_redirects=False)
        # A provider may answer before it has taken all of it; sending is not its answer's time.
        sent_s = self.clock.monotonic() if outgoing.sent_s is None else outgoing.sent_s
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
                started_s=sent_s,
            )
            return parse_upload_answer(content, batch, bytes_max=_ANSWER_BYTES_MAX)
        except InvalidValueError as error:
            raise evolve(schema_error(error), url=answer.url) from None
        finally:
            response.close()
