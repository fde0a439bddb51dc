"""Somebody whose tiles come from a plain tile server."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from attrs import define, evolve

from support.area_operator import AreaOperator
from support.download_site import DERKACHI
from tileferry.domain.tiles import TileCoverage, TileId, TileTemplate

ZOOM = 13
AREA = ("--bbox", str(DERKACHI), "--zoom", str(ZOOM))
DOWNLOAD = ("download", *AREA, "--flight", "F1", "--sector", "active_conflict")
TILES = list(TileCoverage(bbox=DERKACHI, zoom_levels=[ZOOM]).tiles("satellite"))


def taken_lately() -> str:
    """Return a date of pictures that are fresh everywhere."""
    return (datetime.now(UTC) - timedelta(days=30)).date().isoformat()


@define(eq=False)
class XyzOperator(AreaOperator):
    """As ``AreaOperator``, but ``provider_url`` is a tile server that was acknowledged."""

    @property
    def environment(self) -> dict[str, str]:
        given = super().environment
        del given["TILEFERRY_C11_SATELLITE_PROVIDER_URL"]
        return {
            **given,
            "TILEFERRY_XYZ_URL_TEMPLATE": f"{self.provider_url}/xyz/{{z}}/{{x}}/{{y}}.jpg",
            "TILEFERRY_XYZ_ATTRIBUTION": "© Example contributors",
            "TILEFERRY_XYZ_LICENCE": "CC-BY-4.0",
            "TILEFERRY_XYZ_IMAGERY_DATE": taken_lately(),
            "TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR": self.provider_url.rpartition("/")[2],
            "TILEFERRY_XYZ_MAX_REQUESTS_PER_SECOND": "100",
            **self.settings,
        }

    def stored(self, tiles: Iterable[TileId]) -> list[bytes]:
        source = TileTemplate(self.environment["TILEFERRY_XYZ_URL_TEMPLATE"]).source
        return super().stored([evolve(tile, source=source) for tile in tiles])


def picture_paths(tiles: list[TileId]) -> set[str]:
    """Return where a plain tile server has these tiles."""
    return {f"/xyz/{tile.zoom}/{tile.x}/{tile.y}.jpg" for tile in tiles}
