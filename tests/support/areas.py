"""Hypothesis strategies for areas and the keys of partitions."""

from datetime import date

from hypothesis import strategies as st

from tileferry.domain.partitions import PartitionKey
from tileferry.domain.tiles import Area, BBox, SectorClass

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True)


@st.composite
def boxes(draw: st.DrawFn) -> BBox:
    """Any box of a degree or less, across the antimeridian too."""
    west = draw(st.floats(-180, 180))
    south = draw(st.floats(-80, 79))
    east = west + draw(st.floats(0.001, 1))
    return BBox(
        west=west,
        south=south,
        east=east - 360 if east > 180 else east,
        north=south + draw(st.floats(0.001, 1)),
    )


areas = st.builds(
    Area,
    bbox=boxes(),
    zoom_levels=st.lists(st.integers(0, 16), min_size=1, max_size=5),
    sector_class=st.sampled_from(SectorClass),
)
partition_keys = st.builds(
    PartitionKey,
    source=names,
    customer_id=names,
    query_name=names,
    logical_date=st.dates(date(1900, 1, 1), date(2200, 1, 1)),
)
