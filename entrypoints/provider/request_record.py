"""A record for tests and the demo: every request, and the result of every uploaded tile.

A request is written before its response is sent, so a client that has a response finds its request
here. Headers are not recorded, so the API key is not either.
"""

import json
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import IO, Any

from attrs import asdict, frozen

from tileferry.domain.errors import InvalidValueError

KEPT_MAX = 200_000


@frozen(kw_only=True)
class RequestLine:
    """One request and its response."""

    seq: int
    at: str
    call: str
    method: str
    path: str
    query: str = ""
    tile: str | None = None
    idempotency_key: str | None = None
    attempt: int
    status: int | None
    """The status sent; ``None`` if the connection was cut instead."""
    fault: str | None = None


@frozen(kw_only=True)
class UploadLine:
    """One tile of an upload that took effect; a replayed response has no effect."""

    seq: int
    at: str
    tile_id: str
    flight_id: str
    idempotency_key: str
    sha256: str
    size: int
    status: str
    reason: str | None = None


class RequestRecord:
    """Keeps the most recent lines in memory, and all of them in a file if one is given."""

    def __init__(self, path: Path | None = None, *, kept_max: int = KEPT_MAX) -> None:
        self.requests: deque[RequestLine] = deque(maxlen=kept_max)
        self.uploads: deque[UploadLine] = deque(maxlen=kept_max)
        self._numbers = count(1)
        self._file: IO[str] | None = None if path is None else _open_file(path)

    def add_request(self, **facts: Any) -> None:
        """Record a request."""
        self._add(self.requests, RequestLine(**self._next_line(), **facts))

    def add_upload(self, **facts: Any) -> None:
        """Record the result of an uploaded tile."""
        self._add(self.uploads, UploadLine(**self._next_line(), **facts))

    def clear(self) -> None:
        """Forget the lines in memory; the file keeps them."""
        self.requests.clear()
        self.uploads.clear()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_line(self) -> dict[str, Any]:
        return {"seq": next(self._numbers), "at": datetime.now(UTC).isoformat()}

    def _add(self, lines: deque[Any], line: RequestLine | UploadLine) -> None:
        lines.append(line)
        if self._file is not None:
            kind = "upload" if isinstance(line, UploadLine) else "request"
            self._file.write(json.dumps({"kind": kind, **asdict(line)}) + "\n")
            self._file.flush()


def _open_file(path: Path) -> IO[str]:
    try:
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise InvalidValueError(
            field="--record", value=str(path), problem=f"cannot be written: {error.strerror}"
        ) from error


def to_dicts(lines: Iterable[RequestLine | UploadLine]) -> list[dict[str, Any]]:
    """Return the lines as dictionaries."""
    return [asdict(line) for line in lines]
