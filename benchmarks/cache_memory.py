"""``python -m benchmarks.cache_memory folder url count``: store tiny tiles, print the peak."""

import re
import sys
from pathlib import Path

from benchmarks.cache_site import describe_batch, opened, tile_at
from tileferry.application import GroupLimits


def main(folder: Path, url: str, count: int) -> None:
    """Store tiles in groups, as a download does."""
    with opened(folder, url) as cache, cache.group_commit(GroupLimits()) as commit:
        for number in range(count):
            tile_id = tile_at(number)
            commit.add(describe_batch([(tile_id, b"%064d" % number)]))
    print(peak_kib())


def peak_kib() -> int:
    """Return the peak of this process alone; ``getrusage`` would count its parent's too."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert match is not None
    return int(match[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
