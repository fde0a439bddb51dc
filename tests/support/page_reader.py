"""``python -m support.page_reader URL…``: read listing pages, print the peak of memory after each.

A process of its own, because the peak of a process never falls.
"""

import re
import sys
from pathlib import Path

from support.hostile_provider import AREA, KEY
from tileferry.adapters.http import HttpTileProvider, ProviderAddress, new_client
from tileferry.adapters.system import SystemClock
from tileferry.domain.errors import SatelliteProviderError


def read_peak_kib() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])


def main(urls: list[str]) -> None:
    for url in urls:
        with new_client(ProviderAddress(url=url, service_api_key=KEY)) as client:
            provider = HttpTileProvider(client=client, clock=SystemClock())
            try:
                outcome = f"{len(provider.fetch_listing_page(AREA, [14], None).tiles)} tiles"
            except SatelliteProviderError as error:
                outcome = str(error)
        sys.stdout.write(f"{read_peak_kib()} {outcome}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
