"""How much of a link of 1 Gbit/s downloads use: tiles fetched and durable, against what it carries.

The link is the loopback interface of a network namespace, with packets of Ethernet's size and a
token bucket (``tc``): requests, acknowledgements and tiles share it, and the headers of packets
take 5 % of it. nginx and the download are in the namespace; Postgres has a socket file. Needs root
or user namespaces, and Debian's ``iproute2``.

On a busy machine the rate says little. So the details have the processor time of our process for
what the line carries in a second: below one second, one idle core can fill the line.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.cache_site import Site
from benchmarks.download import LARGE_BYTES, SMALL_BYTES, fetch_only, ours
from benchmarks.download_site import serving
from benchmarks.harness import Ratio
from benchmarks.processor_time import compare

LINE_BYTES_S = 1e9 / 8
SHARE_MIN = 0.9
RATE_BYTES_S_MIN = 50e6
"""What specification 5 requires."""
TILES = {"20 KB": (SMALL_BYTES, 16_000), "1 MB": (LARGE_BYTES, 800)}
_SHAPE = (
    "ip link set lo mtu 1500 up",
    "tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 50ms",
)


def run() -> Iterator[Ratio]:
    """Measure downloads over the link, and fetching alone."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    done = subprocess.run(  # noqa: S603  # our own module
        [*alone, sys.executable, "-m", "benchmarks.link"], check=True, stdout=subprocess.PIPE
    )
    for name, rates in json.loads(done.stdout).items():
        mine, _ = rates["ours"]
        detail = ", ".join(
            f"{who} {rate / 1e6:.1f} MB/s, {own_s:.2f} s of processor time for 125 MB"
            for who, (rate, own_s) in rates.items()
        )
        yield Ratio(
            name=f"tiles of {name}, durable, over 1 Gbit/s / the line's 125 MB/s",
            ratio=mine / LINE_BYTES_S,
            goal=SHARE_MIN,
            at_least=True,
            detail=detail,
        )
        yield Ratio(
            name=f"tiles of {name}, durable, over 1 Gbit/s / 50 MB/s",
            ratio=mine / RATE_BYTES_S_MIN,
            goal=1.0,
            at_least=True,
            detail=detail,
        )


def main() -> None:
    """Shape the loopback interface of this namespace, and print rates and costs by tile size."""
    for command in _SHAPE:
        subprocess.run(command.split(), check=True)  # noqa: S603  # constants
    site = Site.prepared("link")
    found = {}
    for name, (size_bytes, count) in TILES.items():
        with serving(site.folder / "tiles", count, size_bytes) as server:
            spent = compare(
                {"ours": partial(ours, site, server), "fetch only": partial(fetch_only, server)},
                rounds=3,
            )
            total_bytes = count * server.file_bytes
            found[name] = {
                who: (total_bytes / one.wall_s, one.own_s * LINE_BYTES_S / total_bytes)
                for who, one in spent.items()
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
