"""Transfers many responses at a time in one thread, with libcurl."""

import select
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pycurl
from attrs import define, field

from tileferry.adapters.http.client import ProviderAddress, check_address, create_tls_context
from tileferry.adapters.http.curl_transfer import CurlTransfer
from tileferry.adapters.http.errors import CurlError
from tileferry.adapters.http.transport import ResponseLimits

_CHECK_S = 0.05
"""How often the transfers in progress are checked against the limits on time and rate."""
_CONNECT_S_MAX = 3_600
"""A backstop; our own connect timeout is checked with the other limits, see ``_AWAY_S``."""
_AWAY_S = 0.02
"""A longer pause between two polls is not counted against the transfers."""
_BUFFER_BYTES = 256 * 1024


@define(eq=False, repr=False)
class CurlTransfers:
    """Transfers in progress, used by one thread at a time; connections are reused."""

    _create_handle: Callable[[], Any]
    _timeout_s: float
    _multi: Any = field(factory=pycurl.CurlMulti)
    _sockets: Any = field(factory=select.poll)
    _idle: list[CurlTransfer] = field(factory=list)
    _active: set[CurlTransfer] = field(factory=set)
    _timer_s: float = float("inf")
    """When libcurl wants to be called even without an event."""
    _check_s: float = 0.0
    _looked_s: float = float("inf")
    """Time of the last poll."""

    def __attrs_post_init__(self) -> None:
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def start(
        self,
        token: object,
        url: str,
        limits: ResponseLimits,
        headers: list[str],
    ) -> None:
        """Begin a transfer."""
        transfer = self._idle.pop() if self._idle else CurlTransfer(self._create_handle())
        transfer.begin(token, url, limits, headers)
        self._multi.add_handle(transfer.handle)
        self._active.add(transfer)

    def wait(self, timeout_s: float) -> list[CurlTransfer]:
        """Return the transfers that have ended; wait at most ``timeout_s`` for the first."""
        now_s = time.monotonic()
        end_s = now_s + timeout_s
        while True:
            if self._timer_s <= now_s:
                self._timer_s = float("inf")
                self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
                now_s = time.monotonic()
            self._forgive_absence(now_s)
            until_s = min(end_s, self._timer_s, self._check_s)
            events = self._sockets.poll(max(0.0, until_s - now_s) * 1_000)
            looked_s = self._looked_s = time.monotonic()
            for descriptor, event in events:
                self._multi.socket_action(descriptor, _EVENTS[event & _IN_OUT])
            # Judge by the time of the poll: data that arrived since is not read yet.
            ended = self._collect_ended(looked_s)
            now_s = time.monotonic()
            if ended or now_s >= end_s:
                return ended

    def _forgive_absence(self, now_s: float) -> None:
        """Do not count a long time since the last poll against the transfers."""
        if now_s - self._looked_s > _AWAY_S:
            for transfer in self._active:
                transfer.forgive(self._looked_s, now_s)

    def _collect_ended(self, now_s: float) -> list[CurlTransfer]:
        _, whole, failed = self._multi.info_read()
        ended = [handle.transfer for handle in whole]
        for handle, code, text in failed:
            transfer = handle.transfer
            transfer.error = CurlError(code, text)
            ended.append(transfer)
        if now_s >= self._check_s:
            self._check_s = now_s + _CHECK_S
            for transfer in self._active.difference(ended):
                transfer.error = transfer.find_problem(now_s, self._timeout_s)
                if transfer.error is not None:
                    ended.append(transfer)
        for transfer in ended:
            self._multi.remove_handle(transfer.handle)
            self._active.discard(transfer)
        return ended

    def release(self, transfer: CurlTransfer) -> None:
        """Take back a transfer that has ended and was read."""
        transfer.clear()
        self._idle.append(transfer)

    def abort(self) -> None:
        """End all transfers in progress, and their connections."""
        for transfer in self._active:
            self._multi.remove_handle(transfer.handle)
            self.release(transfer)
        self._active.clear()

    def close(self) -> None:
        """Close all connections."""
        self.abort()
        for transfer in self._idle:
            del transfer.handle.transfer
            transfer.handle.close()
        self._idle.clear()
        self._multi.close()

    def _watch_socket(self, wanted: int, descriptor: int, _multi: object, _data: object) -> None:
        if wanted == pycurl.POLL_REMOVE:
            self._sockets.unregister(descriptor)
        else:
            self._sockets.register(descriptor, _WANTED[wanted])

    def _set_timer(self, milliseconds: int) -> None:
        is_set = milliseconds >= 0
        self._timer_s = time.monotonic() + milliseconds / 1_000 if is_set else float("inf")


_IN_OUT = select.POLLIN | select.POLLOUT
_EVENTS = {
    0: pycurl.CSELECT_ERR,
    select.POLLIN: pycurl.CSELECT_IN,
    select.POLLOUT: pycurl.CSELECT_OUT,
    _IN_OUT: pycurl.CSELECT_IN | pycurl.CSELECT_OUT,
}
_WANTED = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.POLLIN,
    pycurl.POLL_OUT: select.POLLOUT,
    pycurl.POLL_INOUT: _IN_OUT,
}


@define(repr=False)  # it contains the key
class CurlTransport:
    """Sends requests through libcurl, with the same rules as ``new_client``. Thread-safe."""

    _address: ProviderAddress
    _base: str = field(init=False)
    _options: dict[int, object] = field(init=False)
    _headers: list[str] = field(init=False)
    _unused: list[CurlTransfers] = field(factory=list, init=False)
    _closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        address = self._address
        check_address(address)
        self._base = address.url.rstrip("/")
        self._headers = [f"{name}: {text}" for name, text in address.headers.items()]
        self._options = {
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.FOLLOWLOCATION: 0,
            pycurl.PROXY: "",  # none, whatever the environment says
            pycurl.NETRC: pycurl.NETRC_IGNORED,
            pycurl.PATH_AS_IS: 1,
            pycurl.NOSIGNAL: 1,
            pycurl.BUFFERSIZE: _BUFFER_BYTES,
            pycurl.CONNECTTIMEOUT: _CONNECT_S_MAX,
            pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,
            pycurl.SSL_VERIFYPEER: 1,
            pycurl.SSL_VERIFYHOST: 2,
            **_find_authorities(address),
        }

    def build_url(self, path: str) -> str:
        """Return the URL of a path, which may have a query; a URL stays as it is."""
        return f"{self._base}{path}" if path.startswith("/") else path

    def build_headers(self, added: Mapping[str, str] | None) -> list[str]:
        """Return the headers of a request."""
        if not added:
            return self._headers
        return [*self._headers, *(f"{name}: {text}" for name, text in added.items())]

    def borrow(self) -> CurlTransfers:
        """Return transfers for one thread; they reuse open connections if there are any."""
        try:
            return self._unused.pop()
        except IndexError:
            return CurlTransfers(self._create_handle, self._address.timeout_s)

    def give_back(self, transfers: CurlTransfers) -> None:
        """Take back transfers, so that their connections can be reused."""
        transfers.abort()
        if self._closed:
            transfers.close()
        else:
            self._unused.append(transfers)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        while self._unused:
            self._unused.pop().close()

    def _create_handle(self) -> Any:
        handle = pycurl.Curl()
        for option, value in self._options.items():
            handle.setopt(option, value)
        return handle


def _find_authorities(address: ProviderAddress) -> dict[int, object]:
    """Return the options with the certificates to trust: the ones that Python trusts.

    libcurl's wheel contains OpenSSL with the certificate paths of the system that built it.
    """
    create_tls_context(address)  # reports an invalid certificate file
    places = ssl.get_default_verify_paths()
    options: dict[int, object] = {}
    if places.capath:  # ``None`` if the folder does not exist
        options[pycurl.CAPATH] = places.capath
    if address.ca_file is not None:
        system = Path(places.cafile).read_bytes() if places.cafile else b""
        options[pycurl.CAINFO_BLOB] = system + b"\n" + address.ca_file.read_bytes()
    elif places.cafile:
        options[pycurl.CAINFO] = places.cafile
    return options
