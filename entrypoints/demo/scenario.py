"""The demo's scenario: the operator's settings, the area, and the faults of the provider."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

from tileferry.entrypoints.provider.imagery import draw_tile

FLIGHT = "derkachi-07"
AREA = "derkachi"
BBOX = "36.20,49.90,36.42,50.04"
SECTOR = "stable_rear"
CARD = "card"
"""The folder of the aircraft's captures."""
CAPTURED_ZOOM = 16
CAPTURED = [(39_370 + column, 22_230 + row) for column in range(8) for row in range(6)]
POISONED = {
    "16/39371/22233": "clouds: 93 % of the picture",
    "16/39374/22231": "blurred: sharpness 0.11",
    "16/39376/22234": "blurred: sharpness 0.09",
}
PARTITION_ZOOM = 13
QUERY = ("--customer-id", "acme", "--query", "fields")
DAYS = ("2026-03-01", "2026-03-03")
FAILING = f"satellite/acme/fields/{DAYS[0]}"
"""The partition whose imagery is bad at the first attempt; runs are claimed in order of date."""
SEED = "7"


@frozen(kw_only=True)
class DemoSize:
    """How much is downloaded, and after how many tile requests the download is killed."""

    zoom: str
    kill_after: int


WHOLE = DemoSize(zoom="14-15", kill_after=300)
SMALL = DemoSize(zoom="14", kill_after=80)
"""A shorter demo."""


FAULTS: list[dict[str, Any]] = [
    # A strip of the first partition is missing at first and available later.
    {"fault": "404", "tile": f"{PARTITION_ZOOM}/4921/*", "times": 6},
    {"fault": "503", "tile": f"{PARTITION_ZOOM}/4923/2776", "times": 1},
    # A tile that fails repeatedly, and a rate-limited one.
    {"fault": "503", "tile": "14/9848/5555", "times": 3},
    {"fault": "429", "tile": "14/9847/5556", "times": 1, "retry_after": 3},
    # A stale corner: accepted in this sector, with a warning.
    {"fault": "stale", "tile": "14/984[89]/556[1-3]"},
    {"fault": "stale", "tile": "15/1969[6-9]/1112[2-7]"},
    {"fault": "503", "call": "tile", "rate": 0.03},
    {"fault": "429", "call": "tile", "rate": 0.006},
    {"fault": "truncate", "call": "tile", "rate": 0.012},
    {"fault": "wrong-digest", "rate": 0.008},
    {"fault": "reset", "call": "tile", "rate": 0.012},
    # The response to the first upload is lost; the second upload meets an outage.
    {"fault": "lost-answer", "attempts": [1], "times": 1},
    {"fault": "503", "call": "upload", "attempts": [1], "times": 1},
    *({"fault": "poison", "tile": tile, "reason": said} for tile, said in POISONED.items()),
]


def render_config(home: Path, provider_url: str) -> str:
    """Return the operator's ``tileferry.toml``; JSON quoting of the paths is valid TOML."""

    def quoted(name: str) -> str:
        return json.dumps(str(home / name))

    return f"""\
[tileferry]
data_dir = {quoted("postgres")}

[tileferry.c11]
satellite_provider_url = "{provider_url}"
cache_root = {quoted("cache")}
upload_batch_tiles = 12
# A demo should not wait for 2, 4 and 8 seconds.
backoff_base_s = 1.3
backoff_cap_s = 5

[tileferry.partitions]
raw_root = {quoted("raw")}

[tileferry.log]
file = {quoted("tileferry.log")}

[tileferry.areas]
{AREA} = "{BBOX}"
"""


def write_captures(card: Path) -> None:
    """Write the images that the aircraft captured."""
    for x, y in CAPTURED:
        picture = card / str(CAPTURED_ZOOM) / str(x) / f"{y}.jpg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(draw_tile(CAPTURED_ZOOM, x, y))
    facts = {"captured_at": datetime.now(UTC).isoformat(), "resolution_m_per_px": 0.6}
    (card / "metadata.json").write_text(json.dumps(facts), encoding="utf-8")
