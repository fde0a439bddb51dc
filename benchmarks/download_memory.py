"""``python -m benchmarks.download_memory folder url count``: download tiny tiles, print the peak.

All but the network is real: pages of listings and tiles are made up where they would come in.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from attrs import frozen

from benchmarks.cache_memory import peak_kib
from benchmarks.cache_site import opened
from benchmarks.download_site import area, downloader, line_of, picture_of, request_for
from tileferry.domain.tiles import DownloadOutcome, TileId, TileRange

PAGE_TILES = 1_000


@frozen
class _Answer:
    url: str
    content: bytes
    status: int = 200
    reason: str = "OK"

    def header(self, name: str) -> str | None:
        return {"content-type": "image/png", "content-length": str(len(self.content))}.get(name)

    def chunks(self) -> Iterable[bytes]:
        return [self.content]


class TinyTiles:
    """A lane to tiles that are their own paths."""

    @contextmanager
    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,  # noqa: ARG002  # of the port
        headers: Mapping[str, str] | None = None,  # noqa: ARG002  # as above
    ) -> Iterator[_Answer]:
        """Make a tile up."""
        yield _Answer(path, picture_of(path.encode()))


@frozen
class Pages(httpx.BaseTransport):
    """The listing of one block, a page at a time."""

    block: TileRange

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Make a page up."""
        start = int(request.url.params.get("cursor", "0"))
        end = min(start + PAGE_TILES, self.block.count)
        lines = [line_of(self._tile(number), 32) for number in range(start, end)]
        cursor = None if end == self.block.count else str(end)
        return httpx.Response(200, json={"tiles": lines, "next": cursor})

    def _tile(self, number: int) -> TileId:
        block = self.block
        x, y = divmod(number, block.y_max - block.y_min + 1)
        return TileId(source="satellite", zoom=block.zoom, x=block.x_min + x, y=block.y_min + y)


def main(folder: Path, url: str, count: int) -> None:
    """Download a block whole."""
    block = area(count)
    with (
        opened(folder, url) as cache,
        downloader(
            folder, cache, "http://127.0.0.1:9", transport=Pages(block), lane=TinyTiles()
        ) as ours,
    ):
        report = ours.download_tiles_for_area(request_for(block.bounds, folder))
    assert report.outcome is DownloadOutcome.SUCCESS
    assert report.tiles_downloaded == count
    print(peak_kib())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
