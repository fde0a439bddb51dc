"""Bodies and connections that break, lie or never end."""

import zlib
from functools import lru_cache

from attrs import evolve

from tileferry.domain.tiles import TILE_BYTES_MAX
from tileferry.entrypoints.provider.answers import Answer
from tileferry.entrypoints.provider.faults.fault import (
    ALL_CALLS,
    READS,
    Call,
    Options,
    RequestFault,
)
from tileferry.entrypoints.provider.imagery import repr_digest
from tileferry.entrypoints.provider.wire import (
    close_inside,
    drip,
    flood,
    reset_at_once,
    reset_inside,
    stall_at_once,
    stall_inside,
)

_TILES = frozenset({Call.TILE})
_UPLOADS = frozenset({Call.UPLOAD})
_BOMB_BYTES = 100 * 1024 * 1024


def _cut(answer: Answer, _options: Options) -> Answer:
    return evolve(answer, delivery=reset_at_once, says_nothing=True)


def _slow(answer: Answer, options: Options) -> Answer:
    return evolve(answer, delivery=drip(options["bytes_per_s"]))


def _with_headers(answer: Answer, **changes: str | None) -> Answer:
    headers = {**answer.headers, **{name.replace("_", "-"): text for name, text in changes.items()}}
    return evolve(
        answer, headers={name: text for name, text in headers.items() if text is not None}
    )


def _wrong_digest(answer: Answer, _options: Options) -> Answer:
    return _with_headers(answer, Repr_Digest=repr_digest(answer.body + b"?"))


def _wrong_type(answer: Answer, options: Options) -> Answer:
    return _with_headers(answer, Content_Type=options["content_type"])


def _flipped(answer: Answer, _options: Options) -> Answer:
    middle = len(answer.body) // 2
    changed = bytes((answer.body[middle] ^ 1,))
    return evolve(answer, body=answer.body[:middle] + changed + answer.body[middle + 1 :])


def _no_headers(answer: Answer, _options: Options) -> Answer:
    return _with_headers(answer, X_Resolution_M_Per_Px=None, X_Produced_At=None, Repr_Digest=None)


def _bad_headers(answer: Answer, options: Options) -> Answer:
    return _with_headers(
        answer, X_Resolution_M_Per_Px=options["resolution"], X_Produced_At=options["produced_at"]
    )


@lru_cache(maxsize=4)
def _bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    piece = bytes(1024 * 1024)
    pieces = [packer.compress(piece[: size - begin]) for begin in range(0, size, len(piece))]
    return b"".join([*pieces, packer.flush()])


def _bombed(answer: Answer, options: Options) -> Answer:
    packed = evolve(answer, body=_bomb(options["bytes"]))
    return _with_headers(packed, Content_Encoding="gzip", Repr_Digest=None)


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
        spoil=_slow,
    ),
    RequestFault(
        name="stall",
        says="fall silent in the middle of the body",
        calls=ALL_CALLS,
        spoil=lambda answer, _options: evolve(answer, delivery=stall_inside),
    ),
    RequestFault(
        name="no-answer",
        says="take the request, and never answer it",
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
        spoil=_wrong_digest,
    ),
    RequestFault(
        name="flipped-bit",
        says="change one bit of the image, under the right digest",
        calls=_TILES,
        spoil=_flipped,
    ),
    RequestFault(
        name="wrong-type",
        says="declare another Content-Type (content_type)",
        calls=READS,
        options={"content_type": "text/html"},
        spoil=_wrong_type,
    ),
    RequestFault(
        name="no-headers",
        says="leave resolution, date and digest out of the headers",
        calls=_TILES,
        spoil=_no_headers,
    ),
    RequestFault(
        name="bad-headers",
        says="send headers that cannot be read (resolution, produced_at)",
        calls=_TILES,
        options={"resolution": "NaN", "produced_at": "yesterday"},
        spoil=_bad_headers,
    ),
    RequestFault(
        name="bomb",
        says="send gzip, asked for or not, that unpacks to a great many bytes (bytes)",
        calls=READS,
        options={"bytes": _BOMB_BYTES},
        spoil=_bombed,
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
        says="send a body without a declared length and without end",
        calls=READS,
        spoil=lambda answer, _options: evolve(answer, delivery=flood(None)),
    ),
    RequestFault(
        name="lost-answer",
        says="carry the upload out, then cut the connection instead of answering",
        calls=_UPLOADS,
        spoil=_cut,
    ),
    RequestFault(
        name="cut",
        says="cut the connection without carrying anything out",
        calls=ALL_CALLS,
        spoil=_cut,
        acts=False,
    ),
)
