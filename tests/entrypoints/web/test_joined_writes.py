"""A response leaves in one piece, and nothing of it is lost at a close."""

import asyncio
from typing import Any

from tileferry.entrypoints.web.server import JoinedWrites


class RecordingTransport(asyncio.Transport):
    """Notes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[bytes]] = []
        self.closed = False

    def writelines(self, list_of_data: Any) -> None:
        self.sent.append(list(list_of_data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_head_and_body_are_sent_together() -> None:
    async def send() -> list[list[bytes]]:
        transport = RecordingTransport()
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        joined.write(b"head")
        joined.write(b"body")
        assert transport.sent == []
        await asyncio.sleep(0)
        joined.write(b"next")
        joined.close()
        joined.write(b"too late")
        await asyncio.sleep(0)
        return transport.sent

    assert asyncio.run(send()) == [[b"head", b"body"], [b"next"]]
