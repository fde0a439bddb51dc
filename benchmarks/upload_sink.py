"""``python -m benchmarks.upload_sink rate``: accept every tile that is posted.

Prints its port, and serves until its input ends. It reads the names of the tiles from the manifest
and throws the tiles away: no provider could be faster, so what is measured is the sender. With a
rate above 0 it takes no more bytes a second than that, as a link would.
"""

import json
import re
import socket
import sys
import threading
import time

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TILE = re.compile(rb'"tile_id":"([^"]+)"')
_HEAD_END = b"\r\n\r\n"
_CHUNK = 1024 * 1024


def serve(connection: socket.socket, rate: float) -> None:
    """Answer one connection's batches, one after the other."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    scrap = bytearray(_CHUNK)
    with connection:
        while True:
            head = b""
            while _HEAD_END not in head:
                piece = connection.recv(65_536)
                if not piece:
                    return
                head += piece
            head, _, beginning = head.partition(_HEAD_END)
            length = _LENGTH.search(head)
            assert length is not None, head
            _answer(connection, beginning, int(length[1]), scrap, rate)


def _answer(
    connection: socket.socket, beginning: bytes, length: int, scrap: bytearray, rate: float
) -> None:
    """Read the manifest, drop the tiles, and accept them all."""
    ends_s = time.monotonic() + (length / rate if rate else 0.0)
    first = beginning
    while len(first) < length and first.find(b"\r\n--", 2) < 0:
        first += connection.recv(65_536)
    left = length - len(first)
    while left > 0:
        left -= connection.recv_into(scrap, min(left, _CHUNK))
    manifest = first[: first.find(b"\r\n--", 2)]
    results = [
        {"tile_id": tile.decode(), "status": "accepted", "reason": None}
        for tile in _TILE.findall(manifest)
    ]
    time.sleep(max(0.0, ends_s - time.monotonic()))
    body = json.dumps({"results": results}).encode()
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (len(body), body)
    )


def main(rate: float) -> None:
    """Serve until nobody holds our input any more."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, rate), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(float(sys.argv[1]))
