"""One request and its response, as libcurl transfers it.

Limits that libcurl does not have are checked here while the response arrives. As for other
transports, the reader of the response decides whether to accept it.
"""

import re
import time
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import pycurl
from attrs import define, field

from tileferry.adapters.http.errors import CurlError
from tileferry.adapters.http.responses import (
    EXCERPT_S,
    PARTS_MAX,
    check_pace,
    count_useful_bytes,
    merge_parts,
)
from tileferry.adapters.http.transport import ResponseLimits
from tileferry.domain.errors import SatelliteProviderError

_LINE_ENDS = (b"\r\n", b"\n")
_STATUS_LINE = re.compile(rb"HTTP/[0-9.]+[ \t]+([0-9]{3})")
_SHORT_LINE_BYTES = 128


@define(eq=False, repr=False)  # it contains the key
class CurlTransfer:
    """One request and its response. The object is reused for later requests."""

    handle: Any
    token: object = None
    """Identifies the transfer for the caller."""
    error: Exception | None = None
    started_s: float = 0.0
    _url: str = ""
    _limits: ResponseLimits = field(factory=ResponseLimits)
    _headers: list[str] = field(factory=list)
    _head: list[bytes] = field(factory=list)
    """Lines of headers; trailers follow them."""
    _parts: list[bytes] = field(factory=list)
    _parts_merged: int = 0
    _parsed: tuple[int, dict[str, str]] | None = None
    _seen: tuple[int, int] = (0, 0)
    """The number of header lines and body bytes at the last check."""
    _is_connected: bool = False
    """Whether a check has found a connection."""
    _active_s: float = 0.0
    """When the last check found that something had arrived."""

    def __attrs_post_init__(self) -> None:
        self.handle.transfer = self
        self.handle.setopt(pycurl.HEADERFUNCTION, self._head.append)
        self.handle.setopt(pycurl.WRITEFUNCTION, self._write)

    def begin(self, token: object, url: str, limits: ResponseLimits, headers: list[str]) -> None:
        """Prepare the next request; limits and headers are usually those of the last one."""
        self.token, self._url = token, url
        self.started_s = self._active_s = time.monotonic()
        self.handle.setopt(pycurl.URL, url)
        if limits is not self._limits:
            self._limits = limits
            self.handle.setopt(pycurl.MAXFILESIZE_LARGE, limits.tile_bytes_max)
        if headers is not self._headers:
            self._headers = headers
            self.handle.setopt(pycurl.HTTPHEADER, headers)

    def clear(self) -> None:
        """Forget the response."""
        self.token = self.error = self._parsed = None
        self._head.clear()
        self._parts.clear()
        self._parts_merged = 0
        self._seen = (0, 0)
        self._is_connected = False

    def _write(self, chunk: bytes) -> None:
        # libcurl may call this a million times in a row, without any check in between.
        self._parts.append(chunk)
        if len(self._parts) - self._parts_merged > PARTS_MAX:
            self._parts_merged = merge_parts(self._parts, self._parts_merged)

    def forgive(self, since_s: float, now_s: float) -> None:
        """Do not count a time in which the sockets were not polled."""
        seconds = now_s - max(since_s, self.started_s)
        self.started_s += seconds
        self._active_s += seconds

    def find_problem(self, now_s: float, timeout_s: float) -> Exception | None:
        """Return the error to abort the response with, if it exceeds a limit."""
        size = self.handle.getinfo(pycurl.SIZE_DOWNLOAD_T)
        seen = (len(self._head), size)
        elapsed_s = now_s - self.started_s
        if seen == self._seen:
            if not self._is_connected and self.handle.getinfo(pycurl.PRETRANSFER_TIME):
                self._is_connected, self._active_s = True, now_s
            if now_s - self._active_s > timeout_s:
                what = "data" if self._is_connected else "connection"
                return CurlError(pycurl.E_OPERATION_TIMEDOUT, f"no {what} for {timeout_s:g} s")
            return self._find_slowness(None, elapsed_s)
        is_body = size != self._seen[1]
        self._seen, self._active_s, self._is_connected = seen, now_s, True
        if not is_body:
            return self._find_slowness(None, elapsed_s)
        if self.status != HTTPStatus.OK and elapsed_s > EXCERPT_S:
            return CurlError(pycurl.E_OPERATION_TIMEDOUT, "the body of an error response is slow")
        if size > count_useful_bytes(self, self._limits):
            return CurlError(pycurl.E_WRITE_ERROR, "the rest of the body is not needed")
        return self._find_slowness(size, elapsed_s)

    def _find_slowness(self, size: int | None, elapsed_s: float) -> Exception | None:
        try:
            check_pace(self.url, size, elapsed_s, self._limits)
        except SatelliteProviderError as error:
            return error
        return None

    # The response

    def check_answered(self) -> None:
        """Raise the transfer's error unless the head of the response is complete."""
        if self.error is not None and not self.status:
            raise self.error

    @property
    def status(self) -> int:
        """0 while the head is not complete."""
        return self._read_head()[0]

    @property
    def reason(self) -> str:
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return ""

    @property
    def url(self) -> str:
        return self._url.partition("?")[0]

    def header(self, name: str) -> str | None:
        return self._read_head()[1].get(name)

    def _read_head(self) -> tuple[int, dict[str, str]]:
        if self._parsed is None:
            self._parsed = _parse_head(self._head)
        return self._parsed or (0, {})

    def chunks(self) -> Iterable[bytes]:
        """Yield the body in one piece; its rate was checked while it arrived."""
        yield b"".join(self._parts)
        if self.error is not None:
            raise self.error


def _parse_head(lines: list[bytes]) -> tuple[int, dict[str, str]] | None:
    """Return status and headers of the response, if they are complete.

    Interim responses come before it, and trailers after it.
    """
    status = 0
    fields: dict[str, str] = {}
    name = ""
    is_first = True
    for line in lines:
        if is_first and (found := _STATUS_LINE.match(line)):
            status, fields = int(found[1]), {}
        elif line in _LINE_ENDS:
            if status >= HTTPStatus.OK or status == HTTPStatus.SWITCHING_PROTOCOLS:
                return status, fields
        elif line[0] in b" \t":
            fields[name] = f"{fields.get(name, '')} {line.decode('latin-1').strip()}"
        else:
            split = _split_short_field if len(line) <= _SHORT_LINE_BYTES else _split_field
            name, value = split(line)
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        is_first = line in _LINE_ENDS
    return None


def _split_field(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("latin-1").partition(":")
    return name.strip().lower(), value.strip()


_split_short_field = lru_cache(maxsize=256)(_split_field)
"""Most headers of a server are the same for every tile."""
