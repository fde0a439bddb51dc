"""What is wanted of the ground: a box, zoom levels, and how fast things change there."""

from attrs import field, frozen

from tileferry.domain.canonical import JsonValue
from tileferry.domain.checks import instance
from tileferry.domain.json_object import JsonObject
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.coverage import TileCoverage
from tileferry.domain.tiles.freshness import SectorClass
from tileferry.domain.tiles.tile_id import normalised_zooms
from tileferry.domain.tiles.tile_set import check_area_size

AREA_FIELDS = ("bbox", "zoom_levels", "sector_class")


@frozen(kw_only=True)
class Area:
    """An area as work and plans carry it; the order of its zoom levels does not matter."""

    bbox: BBox = field(validator=instance(BBox))
    zoom_levels: tuple[int, ...] = field(converter=normalised_zooms)
    sector_class: SectorClass = field(validator=instance(SectorClass))

    def __attrs_post_init__(self) -> None:
        check_area_size(self.coverage)

    @property
    def coverage(self) -> TileCoverage:
        """The tiles that the area consists of."""
        return TileCoverage(bbox=self.bbox, zoom_levels=self.zoom_levels)


def area_json(area: Area) -> dict[str, JsonValue]:
    """Return an area in JSON's terms; the box as text, which no reader of numbers can round."""
    return {
        "bbox": str(area.bbox),
        "zoom_levels": list(area.zoom_levels),
        "sector_class": area.sector_class.value,
    }


def area_from(data: JsonObject) -> Area:
    """Read an area among other fields."""
    sector = data.get_member("sector_class", SectorClass)
    with data.naming("bbox"):
        bbox = BBox.parse(data.get("bbox", str))
    with data.naming("zoom_levels"):
        zooms = normalised_zooms(data.get_list("zoom_levels"))  # type: ignore[arg-type]  # it checks each
    with data.naming():
        return Area(bbox=bbox, zoom_levels=zooms, sector_class=sector)
