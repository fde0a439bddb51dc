"""What happened, for tests and the demo: every request, and what became of every uploaded tile.

Requests are written before they are answered, so that whoever has an answer finds its request here.
No header is kept: the API key is in none of it.
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
    """One request, and how it was answered."""

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
    """What was answered; none when the connection was cut instead."""
    fault: str | None = None


@frozen(kw_only=True)
class UploadLine:
    """One tile of one upload that was carried out; a replayed answer carries nothing out."""

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
    """Keeps the most recent lines in memory, and all of them in a file when there is one."""

    def __init__(self, path: Path | None = None, *, kept_max: int = KEPT_MAX) -> None:
        self.requests: deque[RequestLine] = deque(maxlen=kept_max)
        self.uploads: deque[UploadLine] = deque(maxlen=kept_max)
        self._numbers = count(1)
        self._file: IO[str] | None = None if path is None else _open_file(path)

    def add_request(self, **facts: Any) -> None:
        """Write a request down."""
        self._add(self.requests, RequestLine(**self._next_line(), **facts))

    def add_upload(self, **facts: Any) -> None:
        """Write down what became of a tile."""
        self._add(self.uploads, UploadLine(**self._next_line(), **facts))

    def clear(self) -> None:
        """Forget what is kept in memory; a file keeps it."""
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
    """Return lines as they are shown."""
    return [asdict(line) for line in lines]
