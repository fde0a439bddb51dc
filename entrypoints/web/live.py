"""Live updates: fragments of pages, sent as server-sent events while a page is open.

A fragment is rendered once for all its watchers, and sent when it has changed. The
number of watchers and of fragments is bounded.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from attrs import define, evolve, field
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

from tileferry.domain.errors import TileManagerError
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.web.site import Feed, PageRequest, Site

WATCHERS_MAX = 64
HEARTBEAT_S = 15.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@define(eq=False)
class _Channel:
    """One fragment and its watchers."""

    latest: bytes = b""
    version: int = 0
    watchers: int = 0
    changed: asyncio.Condition = field(factory=asyncio.Condition)
    task: "asyncio.Task[None] | None" = None


@define(eq=False)
class LiveFeeds:
    """All fragments that are watched now."""

    site: Site
    _channels: dict[tuple[object, ...], _Channel] = field(factory=dict, init=False)
    _watchers: int = field(default=0, init=False)
    _stopping: asyncio.Event = field(factory=asyncio.Event, init=False)

    @property
    def is_full(self) -> bool:
        return self._watchers >= WATCHERS_MAX

    async def stop(self) -> None:
        """End every stream; browsers connect again by themselves."""
        self._stopping.set()
        for channel in list(self._channels.values()):
            async with channel.changed:
                channel.changed.notify_all()

    async def serve(self, feed: Feed, request: PageRequest, receive: Receive, send: Send) -> None:
        """Send updates to one watcher until it disconnects or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        watching = asyncio.ensure_future(self._send_events(feed, request, send))
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((watching, leaving, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (watching, leaving, stopping):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClientDisconnect, OSError):
                await task
        if not leaving.done() or leaving.cancelled():
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b""})

    async def _send_events(self, feed: Feed, request: PageRequest, send: Send) -> None:
        async for event in self._watch(feed, request):
            await send({"type": "http.response.body", "body": event, "more_body": True})

    async def _watch(self, feed: Feed, request: PageRequest) -> AsyncIterator[bytes]:
        # Fragments contain no forms, so operators can share them.
        key = (feed.name, request.session.role, tuple(sorted(request.query.items())))
        channel = self._channels.setdefault(key, _Channel())
        channel.watchers += 1
        self._watchers += 1
        if channel.task is None:
            channel.task = asyncio.ensure_future(self._poll(feed, request, channel))
        seen = 0
        try:
            while True:
                if channel.version == seen:
                    try:
                        async with asyncio.timeout(HEARTBEAT_S), channel.changed:
                            await channel.changed.wait()
                    except TimeoutError:
                        yield b": still here\n\n"
                        continue
                if channel.version != seen:
                    seen = channel.version
                    yield channel.latest
        finally:
            channel.watchers -= 1
            self._watchers -= 1
            if channel.watchers == 0:
                channel.task.cancel()
                self._channels.pop(key, None)

    async def _poll(self, feed: Feed, request: PageRequest, channel: _Channel) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            event = await loop.run_in_executor(self.site.page_threads, _render, feed, request)
            if event != channel.latest:
                async with channel.changed:
                    channel.latest, channel.version = event, channel.version + 1
                    channel.changed.notify_all()
            await asyncio.sleep(feed.every_s)


def _render(feed: Feed, request: PageRequest) -> bytes:
    try:
        return _encode_event("update", feed.render(evolve(request, form={})))
    except TileManagerError as error:
        return _encode_event("failure", describe_error(error))


def _encode_event(kind: str, text: str) -> bytes:
    """Return an event; JSON keeps any text on one line."""
    return f"event: {kind}\ndata: {json.dumps(text)}\n\n".encode()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
