"""Faults in the response: error statuses, redirects, broken connections and slow bodies."""

import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache

from attrs import evolve

from tileferry.domain.tiles import TILE_BYTES_MAX
from tileferry.entrypoints.provider.faults.fault import (
    ALL_CALLS,
    READS,
    Call,
    Options,
    RequestFault,
)
from tileferry.entrypoints.provider.imagery import compute_repr_digest
from tileferry.entrypoints.provider.responses import (
    ProviderResponse,
    close_inside,
    drip,
    error_response,
    flood,
    reset_at_once,
    reset_inside,
    stall_at_once,
    stall_inside,
)

_ELSEWHERE = "https://elsewhere.invalid"
"""A host that cannot exist (RFC 6761), so following the redirect always fails."""


def _limit_rate(_answer: ProviderResponse, options: Options) -> ProviderResponse:
    return error_response(
        429, "rate_limited", "too many requests", Retry_After=str(options["retry_after"])
    )


def _limit_rate_until_date(_answer: ProviderResponse, options: Options) -> ProviderResponse:
    until = datetime.now(UTC) + timedelta(seconds=options["retry_after"])
    when = format_datetime(until, usegmt=True)
    return error_response(429, "rate_limited", "too many requests", Retry_After=when)


def _limit_rate_without_header(_answer: ProviderResponse, _options: Options) -> ProviderResponse:
    return error_response(429, "rate_limited", "too many requests")


def _server_error_fault(status: int) -> RequestFault:
    def spoil(_answer: ProviderResponse, options: Options) -> ProviderResponse:
        after = options["retry_after"]
        headers = {} if after is None else {"Retry-After": str(after)}
        return error_response(status, "server_error", "the provider is not well", **headers)

    return RequestFault(
        name=str(status),
        says=f"answer {status}; retry_after may add the header",
        calls=ALL_CALLS,
        options={"retry_after": None},
        spoil=spoil,
        acts=False,
    )


def _auth_fault(status: int, code: str) -> RequestFault:
    return RequestFault(
        name=str(status),
        says=f"answer {status}, as if the key were invalid",
        calls=ALL_CALLS,
        spoil=lambda _answer, _options: error_response(status, code, "the key is refused"),
        acts=False,
    )


def _redirect(_answer: ProviderResponse, options: Options) -> ProviderResponse:
    return ProviderResponse(
        status=options["status"], headers={"Location": f"{options['to']}/elsewhere"}
    )


STATUS_FAULTS = (
    RequestFault(
        name="429",
        says="answer 429 with Retry-After in seconds (retry_after, any text)",
        calls=ALL_CALLS,
        options={"retry_after": 1},
        spoil=_limit_rate,
        acts=False,
    ),
    RequestFault(
        name="429-date",
        says="answer 429 with Retry-After as a date, retry_after seconds ahead",
        calls=ALL_CALLS,
        options={"retry_after": 2},
        spoil=_limit_rate_until_date,
        acts=False,
    ),
    RequestFault(
        name="429-bare",
        says="answer 429 without Retry-After",
        calls=ALL_CALLS,
        spoil=_limit_rate_without_header,
        acts=False,
    ),
    *(_server_error_fault(status) for status in (500, 502, 503, 504)),
    _auth_fault(401, "unauthorized"),
    _auth_fault(403, "forbidden"),
    RequestFault(
        name="404",
        says="answer 404 for a tile that was listed",
        calls=frozenset({Call.TILE}),
        lasting=True,
        spoil=lambda _answer, _options: error_response(
            404, "no_such_tile", "there is no such tile"
        ),
        acts=False,
    ),
    RequestFault(
        name="redirect",
        says="send the client to another host (to, status)",
        calls=ALL_CALLS,
        options={"to": _ELSEWHERE, "status": 307},
        spoil=_redirect,
        acts=False,
    ),
)


_TILES = frozenset({Call.TILE})
_UPLOADS = frozenset({Call.UPLOAD})
_BOMB_BYTES = 100 * 1024 * 1024


def _cut(answer: ProviderResponse, _options: Options) -> ProviderResponse:
    return evolve(answer, delivery=reset_at_once, says_nothing=True)


def _slow_down(answer: ProviderResponse, options: Options) -> ProviderResponse:
    return evolve(answer, delivery=drip(options["bytes_per_s"]))


def _change_headers(answer: ProviderResponse, **changes: str | None) -> ProviderResponse:
    headers = {**answer.headers, **{name.replace("_", "-"): text for name, text in changes.items()}}
    return evolve(
        answer, headers={name: text for name, text in headers.items() if text is not None}
    )


def _send_wrong_digest(answer: ProviderResponse, _options: Options) -> ProviderResponse:
    return _change_headers(answer, Repr_Digest=compute_repr_digest(answer.body + b"?"))


def _send_wrong_type(answer: ProviderResponse, options: Options) -> ProviderResponse:
    return _change_headers(answer, Content_Type=options["content_type"])


def _flip_bit(answer: ProviderResponse, _options: Options) -> ProviderResponse:
    middle = len(answer.body) // 2
    changed = bytes((answer.body[middle] ^ 1,))
    return evolve(answer, body=answer.body[:middle] + changed + answer.body[middle + 1 :])


def _drop_headers(answer: ProviderResponse, _options: Options) -> ProviderResponse:
    return _change_headers(answer, X_Resolution_M_Per_Px=None, X_Produced_At=None, Repr_Digest=None)


def _send_bad_headers(answer: ProviderResponse, options: Options) -> ProviderResponse:
    return _change_headers(
        answer, X_Resolution_M_Per_Px=options["resolution"], X_Produced_At=options["produced_at"]
    )


@lru_cache(maxsize=4)
def _build_bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    piece = bytes(1024 * 1024)
    pieces = [packer.compress(piece[: size - begin]) for begin in range(0, size, len(piece))]
    return b"".join([*pieces, packer.flush()])


def _send_bomb(answer: ProviderResponse, options: Options) -> ProviderResponse:
    packed = evolve(answer, body=_build_bomb(options["bytes"]))
    return _change_headers(packed, Content_Encoding="gzip", Repr_Digest=None)


BODY_FAULTS = (
    RequestFault(
        name="reset",
        says="break the connection in the middle of the body",
        calls=ALL_CALLS,
        spoil=lambda answer, _options: evolve(answer, delivery=reset_inside),
    ),
    RequestFault(
        name="slow",
        says="send the body at bytes_per_s",
        calls=ALL_CALLS,
        options={"bytes_per_s": 2_000},
        spoil=_slow_down,
    ),
    RequestFault(
        name="stall",
        says="stop sending in the middle of the body",
        calls=ALL_CALLS,
        spoil=lambda answer, _options: evolve(answer, delivery=stall_inside),
    ),
    RequestFault(
        name="no-answer",
        says="accept the request, and never answer it",
        calls=ALL_CALLS,
        spoil=lambda answer, _options: evolve(answer, delivery=stall_at_once, says_nothing=True),
        acts=False,
    ),
    RequestFault(
        name="truncate",
        says="close after half of the declared Content-Length",
        calls=ALL_CALLS,
        spoil=lambda answer, _options: evolve(answer, delivery=close_inside),
    ),
    RequestFault(
        name="wrong-digest",
        says="declare a Repr-Digest of other bytes",
        calls=_TILES,
        spoil=_send_wrong_digest,
    ),
    RequestFault(
        name="flipped-bit",
        says="flip one bit of the image, but send the digest of the original",
        calls=_TILES,
        spoil=_flip_bit,
    ),
    RequestFault(
        name="wrong-type",
        says="declare another Content-Type (content_type)",
        calls=READS,
        options={"content_type": "text/html"},
        spoil=_send_wrong_type,
    ),
    RequestFault(
        name="no-headers",
        says="omit resolution, date and digest from the headers",
        calls=_TILES,
        spoil=_drop_headers,
    ),
    RequestFault(
        name="bad-headers",
        says="send headers that cannot be read (resolution, produced_at)",
        calls=_TILES,
        options={"resolution": "NaN", "produced_at": "yesterday"},
        spoil=_send_bad_headers,
    ),
    RequestFault(
        name="bomb",
        says="send gzip, requested or not, that decompresses to very many bytes (bytes)",
        calls=READS,
        options={"bytes": _BOMB_BYTES},
        spoil=_send_bomb,
    ),
    RequestFault(
        name="oversize",
        says="declare and send a body larger than any tile (bytes)",
        calls=READS,
        options={"bytes": TILE_BYTES_MAX + 1},
        spoil=lambda answer, options: evolve(answer, delivery=flood(options["bytes"])),
    ),
    RequestFault(
        name="endless-body",
        says="send an endless body without a declared length",
        calls=READS,
        spoil=lambda answer, _options: evolve(answer, delivery=flood(None)),
    ),
    RequestFault(
        name="lost-answer",
        says="perform the upload, then cut the connection instead of answering",
        calls=_UPLOADS,
        spoil=_cut,
    ),
    RequestFault(
        name="cut",
        says="cut the connection without doing anything",
        calls=ALL_CALLS,
        spoil=_cut,
        acts=False,
    ),
)
