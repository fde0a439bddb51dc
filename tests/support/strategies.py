"""Hypothesis strategies for the domain's values."""

from datetime import UTC, date, datetime

from hypothesis import strategies as st

from tileferry.domain.canonical import JsonValue
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.retry import (
    BackoffKind,
    ErrorClass,
    Failure,
    Final,
    RateLimited,
    Retryable,
    RetryPolicy,
)
from tileferry.domain.tiles import Area, BBox, SectorClass, Shape

delays_s = st.floats(0, 7_200)
keys = st.text(max_size=40)
moments = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001  # the strategy adds the zone itself
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001  # as above
    timezones=st.just(UTC),
)


@st.composite
def policies(draw: st.DrawFn) -> RetryPolicy:
    """Any valid policy with the default exception lists."""
    base_delay = draw(delays_s | st.integers(0, 10))
    return RetryPolicy(
        max_attempts=draw(st.integers(1, 20) | st.just(1_000)),
        base_delay=base_delay,
        max_delay=draw(st.floats(base_delay, 604_800)),
        backoff_multiplier=draw(st.floats(1, 100)),
        jitter_enabled=draw(st.booleans()),
        jitter_factor=draw(st.floats(0, 1)),
        backoff=draw(st.sampled_from(BackoffKind)),
        deadline_s=draw(st.none() | st.floats(0, 100_000)),
        max_rate_limited=draw(st.integers(0, 5)),
        max_retry_after_s=draw(st.floats(0, 600)),
    )


error_classes: st.SearchStrategy[ErrorClass] = st.one_of(
    st.just(Final()),
    st.just(Retryable()),
    st.builds(RateLimited, retry_after_s=st.none() | st.floats(0, 1e9)),
)

failures = st.builds(
    Failure,
    key=keys,
    attempt=st.integers(1, 30) | st.integers(100, 1_000),
    error=error_classes,
    rate_limited=st.integers(0, 8),
    elapsed_s=st.floats(0, 200_000),
    budget_tokens=st.none() | st.floats(0, 3),
    budget_wait_s=st.none() | st.floats(0, 100),
)

_json_leaves: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    _json_leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)


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


@st.composite
def triangles(draw: st.DrawFn) -> Shape:
    """Any triangle of a degree or less."""
    west, south = draw(st.floats(-180, 179)), draw(st.floats(-80, 79))
    width, height = draw(st.floats(0.001, 1)), draw(st.floats(0.001, 1))
    corners = [(west, south), (west + width, south), (west + width / 2, south + height)]
    return Shape.from_degrees(polygons=[[corners]])


areas = st.builds(
    Area.from_place,
    boxes() | triangles(),
    st.lists(st.integers(0, 16), min_size=1, max_size=5),
    st.sampled_from(SectorClass),
)
partition_keys = st.builds(
    PartitionKey,
    source=names,
    customer_id=names,
    query_name=names,
    logical_date=st.dates(date(1900, 1, 1), date(2200, 1, 1)),
)
