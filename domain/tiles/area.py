"""An area of tiles: a box or a shape, zoom levels and a sector class."""

from collections.abc import Iterable

from attrs import field, frozen, validators

from tileferry.domain.canonical import JsonValue
from tileferry.domain.json import JsonObject
from tileferry.domain.tiles.bbox import BBox
from tileferry.domain.tiles.coverage import TileCoverage, check_area_size
from tileferry.domain.tiles.gates import SectorClass
from tileferry.domain.tiles.shape import Place, Shape
from tileferry.domain.tiles.tile_id import normalize_zooms
from tileferry.domain.validation import instance

AREA_FIELDS = ("bbox", "zoom_levels", "sector_class")
OPTIONAL_AREA_FIELDS = ("shape",)


@frozen(kw_only=True)
class Area:
    """The area of a request, run or plan. The order of the given zoom levels does not matter.

    ``bbox`` is the area, or the box around its ``shape``.
    """

    bbox: BBox = field(validator=instance(BBox))
    zoom_levels: tuple[int, ...] = field(converter=normalize_zooms)
    sector_class: SectorClass = field(validator=instance(SectorClass))
    shape: Shape | None = field(default=None, validator=validators.optional(instance(Shape)))

    coverage: TileCoverage = field(init=False, repr=False, eq=False)

    @coverage.default
    def _compute_coverage(self) -> TileCoverage:
        coverage = TileCoverage(bbox=self.bbox, zoom_levels=self.zoom_levels, shape=self.shape)
        check_area_size(coverage)
        return coverage

    @classmethod
    def from_place(
        cls, place: Place, zoom_levels: Iterable[int], sector_class: SectorClass
    ) -> "Area":
        """Return the area of a box or a shape."""
        return cls.from_coverage(TileCoverage.from_place(place, zoom_levels), sector_class)

    @classmethod
    def from_coverage(cls, coverage: TileCoverage, sector_class: SectorClass) -> "Area":
        """Return the area of some tiles."""
        return cls(
            bbox=coverage.bbox,
            zoom_levels=coverage.zoom_levels,
            sector_class=sector_class,
            shape=coverage.shape,
        )

    @property
    def place_key(self) -> str:
        """The box, and a hash of the shape, for keys and hashes. It must not change."""
        return str(self.bbox) if self.shape is None else f"{self.bbox}~{self.shape.digest}"


def area_to_json(area: Area) -> dict[str, JsonValue]:
    """Return the area as JSON. The box is text, so that no JSON reader rounds its numbers."""
    return {
        "bbox": str(area.bbox),
        "zoom_levels": list(area.zoom_levels),
        "sector_class": area.sector_class.value,
        **({} if area.shape is None else {"shape": str(area.shape)}),
    }


def parse_area(data: JsonObject) -> Area:
    """Parse the area fields of a JSON object, which may have other fields too."""
    sector = data.get_enum("sector_class", SectorClass)
    with data.locate_errors("bbox"):
        bbox = BBox.parse(data.get("bbox", str))
    with data.locate_errors("zoom_levels"):
        zooms = normalize_zooms(data.get_list("zoom_levels"))  # type: ignore[arg-type]  # normalize_zooms checks each
    with data.locate_errors("shape"):
        shape = Shape.parse(data.get("shape", str)) if "shape" in data.fields else None
    with data.locate_errors():
        return Area(bbox=bbox, zoom_levels=zooms, sector_class=sector, shape=shape)
