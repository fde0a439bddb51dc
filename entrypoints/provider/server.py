"""Runs the provider; a stop releases every connection that a fault holds."""

import asyncio
import socket
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tileferry.entrypoints.http_server import HttpServer, ListenAddress
from tileferry.entrypoints.provider.app import ProviderSettings, ReferenceProvider
from tileferry.entrypoints.provider.responses import Connections


class ProviderServer(HttpServer):
    """A server for one provider; :meth:`run` blocks until :meth:`stop` or a signal."""

    def __init__(
        self, settings: ProviderSettings, address: ListenAddress, announce: Callable[[str], None]
    ) -> None:
        self._connections = Connections()
        self.provider = ReferenceProvider(settings, self._connections)
        super().__init__(
            self.provider.app,
            address,
            announce,
            http=_build_tracking_protocol(self._connections),
        )

    def release(self) -> None:
        """Close the record of requests."""
        self.provider.record.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Release every connection that a fault holds, then shut down as usual."""
        self._connections.stopping.set()
        await super().shutdown(sockets)


def _build_tracking_protocol(connections: Connections) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol class, extended to register its connections."""

    class Tracked(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # same as in the base class
            super().connection_made(transport)
            connections.add(self.client, transport)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self.client)
            super().connection_lost(exc)

    return Tracked
