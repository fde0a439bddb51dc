"""Work: what a run is to do, as the queue keeps it, and what is refused of what it kept."""

import json
from datetime import date
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import areas, names, partition_keys

from tileferry.domain.canonical import JsonValue, canonical_json
from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.retry import Final
from tileferry.domain.runs import RunKind, classify_error
from tileferry.domain.tiles import Area, BBox, SectorClass
from tileferry.domain.work import AcquirePartition, DownloadArea, UploadFlight, Work, parse_work

KEY = PartitionKey(
    source="osm", customer_id="acme", query_name="roads", logical_date=date(2024, 1, 31)
)
AREA = Area(
    bbox=BBox.parse("36.1,49.9,36.4,50.1"),
    zoom_levels=(15, 16),
    sector_class=SectorClass.ACTIVE_CONFLICT,
)
ACQUIRE = AcquirePartition(key=KEY, area=AREA)
DOWNLOAD = DownloadArea(source="sat", flight_id="F7", area=AREA)
UPLOAD = UploadFlight(source="sat", flight_id="F7")
EACH: list[Work] = [ACQUIRE, DOWNLOAD, UPLOAD]
ONE_OF_SECTORS = f"must be one of {', '.join(SectorClass)}"

works: st.SearchStrategy[Work] = st.one_of(
    st.builds(AcquirePartition, key=partition_keys, area=areas),
    st.builds(DownloadArea, source=names, flight_id=names, area=areas),
    st.builds(UploadFlight, source=names, flight_id=names),
)
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_payload_format_is_stable() -> None:
    area = {
        "bbox": "36.1,49.9,36.4,50.1",
        "zoom_levels": [15, 16],
        "sector_class": "active_conflict",
    }
    assert ACQUIRE.to_payload() == {
        "version": 1,
        "source": "osm",
        "customer_id": "acme",
        "query_name": "roads",
        "logical_date": "2024-01-31",
        **area,
    }
    assert DOWNLOAD.to_payload() == {"version": 1, "source": "sat", "flight_id": "F7", **area}
    assert UPLOAD.to_payload() == {"version": 1, "source": "sat", "flight_id": "F7"}


def test_each_run_kind_has_its_work_and_source() -> None:
    assert [work.kind for work in EACH] == list(RunKind)
    assert [work.source for work in EACH] == ["osm", "sat", "sat"]


@given(works)
def test_work_round_trips_through_payload(work: Work) -> None:
    assert parse_work(work.kind, json.loads(json.dumps(work.to_payload()))) == work
    assert parse_work(work.kind, json.loads(canonical_json(work.to_payload()))) == work


def test_dedupe_keys() -> None:
    assert ACQUIRE.dedupe_key == "acquire_partition/osm/acme/roads/2024-01-31"
    assert DOWNLOAD.dedupe_key == ("download_area/sat/F7/36.1,49.9,36.4,50.1/15,16/active_conflict")
    assert UPLOAD.dedupe_key == "upload_flight/sat/F7"


def test_partition_dedupe_key_ignores_area() -> None:
    other, reordered = (evolve(AREA, zoom_levels=zooms) for zooms in ((3,), (16, 15)))
    assert evolve(ACQUIRE, area=other).dedupe_key == ACQUIRE.dedupe_key
    assert evolve(DOWNLOAD, area=reordered).dedupe_key == DOWNLOAD.dedupe_key
    assert evolve(DOWNLOAD, area=other).dedupe_key != DOWNLOAD.dedupe_key


@given(works, works)
def test_only_equal_work_shares_dedupe_key(one: Work, other: Work) -> None:
    same = one.dedupe_key == other.dedupe_key
    if isinstance(one, AcquirePartition) and isinstance(other, AcquirePartition):
        assert same == (one.key == other.key)
    else:
        assert same == (one == other)
    assert len(one.dedupe_key) <= 400  # an index of the database has room for it


@pytest.mark.parametrize(
    ("work", "changed", "field", "problem"),
    [
        (UPLOAD, {"version": 2}, "version", "is not known: this release reads version 1"),
        (UPLOAD, {"version": "1"}, "version", "must be a whole number"),
        (UPLOAD, {"flight_id": "../x"}, "flight_id", "is not a plain name"),
        (UPLOAD, {"flight_id": 7}, "flight_id", "must be text"),
        (UPLOAD, {"bbox": "1,2,3,4"}, "bbox", "is not known"),
        (DOWNLOAD, {"source": "a b"}, "source", "is not a plain name"),
        (DOWNLOAD, {"bbox": "1,2,3,94"}, "bbox.north", "must be a finite number from -90 to 90"),
        (ACQUIRE, {"customer_id": ""}, "customer_id", "is not a plain name"),
        (ACQUIRE, {"logical_date": 20240131}, "logical_date", "must be text"),
        (
            ACQUIRE,
            {"logical_date": "31.1.2024"},
            "logical_date",
            "must be a date, such as 2024-01-31",
        ),
        (ACQUIRE, {"sector_class": None}, "sector_class", ONE_OF_SECTORS),
    ],
)
def test_invalid_payload_is_rejected_by_field(
    work: Work, changed: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_work(work.kind, {**work.to_payload(), **changed})
    assert (caught.value.field, caught.value.problem) == (f"payload.{field}", problem)
    assert classify_error(caught.value) == Final()


@pytest.mark.parametrize("work", EACH, ids=lambda work: work.kind.value)
def test_every_payload_field_is_required(work: Work) -> None:
    payload = work.to_payload()
    for name in payload.keys() - {"version"}:
        with pytest.raises(InvalidValueError) as caught:
            parse_work(work.kind, {key: payload[key] for key in payload if key != name})
        assert (caught.value.field, caught.value.problem) == (f"payload.{name}", "is missing")


@given(work=st.sampled_from(EACH), data=st.data())
def test_arbitrary_payloads_are_parsed_or_rejected_by_field(
    work: Work, data: st.DataObject
) -> None:
    payload: JsonValue = data.draw(json_values)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(work.to_payload())))
        payload = {**work.to_payload(), name: payload}
    found = parse_work_or_error(work.kind, payload)
    if isinstance(found, InvalidValueError):
        assert found.field.startswith("payload")
    else:
        assert parse_work(found.kind, found.to_payload()) == found


def parse_work_or_error(kind: RunKind, payload: JsonValue) -> Work | InvalidValueError:
    try:
        return parse_work(kind, payload)
    except InvalidValueError as error:
        return error
