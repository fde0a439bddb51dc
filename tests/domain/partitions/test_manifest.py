"""A manifest is read as it was written, or refused by the field that is wrong."""

import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from support.raw_partitions import (
    AREA,
    KEY,
    NOW,
    RUN,
    TILES,
    create_entries,
    create_entry,
    create_header,
)
from support.strategies import moments

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.partitions import PartitionKey
from tileferry.domain.partitions.manifest import (
    ManifestEntry,
    PartitionHeader,
    SealedPartition,
)
from tileferry.domain.partitions.manifest_format import (
    HEADER_BYTES_MAX,
    LINE_BYTES_MAX,
    ManifestReader,
    format_manifest,
    parse_sealed_partition,
)
from tileferry.domain.runs import RunId
from tileferry.domain.tiles import BBox, BlobRef, FreshnessLabel, Shape, TileId
from tileferry.domain.tiles.area import Area

ENTRIES = create_entries(TILES[:20])
HEADER = create_header(20, tiles_missing=1, retry_count=3)
MANIFEST = b"".join(format_manifest(HEADER, ENTRIES))
LINES = MANIFEST.splitlines(keepends=True)

tile_ids = st.builds(
    lambda zoom, x, y: TileId(source="sat", zoom=zoom, x=x % 2**zoom, y=y % 2**zoom),
    st.integers(0, 21),
    st.integers(0, 2**21),
    st.integers(0, 2**21),
)
blobs = st.builds(
    BlobRef,
    location=st.tuples(st.integers(1, 10**9), st.integers(0, 2**60)),
    length=st.integers(0, 64 * 2**20),
    sha256=st.binary(max_size=9).map(lambda content: sha256(content).hexdigest()),
)
any_entry = st.builds(
    ManifestEntry,
    tile_id=tile_ids,
    blob=blobs,
    resolution_m_per_px=st.floats(0, exclude_min=True, allow_infinity=False),
    produced_at=moments,
    freshness=st.sampled_from(FreshnessLabel),
)


def read_manifest(
    content: bytes, *, chunk: int = 1_000
) -> tuple[PartitionHeader, list[ManifestEntry]]:
    chunks = (content[start : start + chunk] for start in range(0, len(content), chunk))
    reader = ManifestReader.from_chunks(chunks)
    return reader.header, list(reader.entries())


def seal_lines(lines: list[bytes]) -> bytes:
    """Put a matching last line under edited ones, as a careful forger would."""
    entries = [json.loads(line) for line in lines[1:]]
    end = {
        "tiles": len(entries),
        "size_bytes": sum(entry["length"] for entry in entries),
        "sha256": sha256(b"".join(lines)).hexdigest(),
    }
    return b"".join(lines) + json.dumps({"end": end}, separators=(",", ":")).encode() + b"\n"


@given(st.lists(any_entry, max_size=5), st.integers(1, 600), moments)
def test_manifest_round_trips(entries: list[ManifestEntry], chunk: int, at: datetime) -> None:
    header = evolve(HEADER, sealed_at=at)
    content = b"".join(format_manifest(header, entries))
    assert read_manifest(content, chunk=chunk) == (header, entries)


def test_manifest_of_a_shape_has_a_longer_first_line() -> None:
    vertices = [(36 + n / 1e5, 50 + n % 7 / 1e5) for n in range(5_000)]
    shape = Shape.from_degrees(lines=[vertices])
    area = Area.from_place(shape, [9], HEADER.area.sector_class)
    header = evolve(create_header(0), area=area)
    content = b"".join(format_manifest(header, []))
    assert len(content) > 10 * LINE_BYTES_MAX
    assert read_manifest(content) == (header, [])
    endless = (content.replace(b"\n", b" ") for _ in range(99))
    with pytest.raises(InvalidValueError, match=f"a line longer than {HEADER_BYTES_MAX} bytes"):
        ManifestReader.from_chunks(endless)


def test_first_and_last_line_identify_sealed_partition() -> None:
    found = parse_sealed_partition(MANIFEST[:LINE_BYTES_MAX], MANIFEST[-LINE_BYTES_MAX:])
    assert found == SealedPartition(
        key=KEY,
        run_id=RUN,
        tiles=20,
        size_bytes=20 * 500,
        manifest_sha256=sha256(b"".join(LINES[:-1])).hexdigest(),
        sealed_at=NOW,
    )
    assert found.subject == "raw partition satellite/acme/roads/2026-10-25/run-1"


def test_manifest_without_tiles_is_read() -> None:
    content = b"".join(format_manifest(create_header(0), []))
    assert read_manifest(content) == (create_header(0), [])
    assert parse_sealed_partition(content, content).tiles == 0


def test_date_of_the_imagery_is_recorded_if_it_was_requested() -> None:
    dated = evolve(HEADER, imagery_date=HEADER.key.logical_date)
    content = b"".join(format_manifest(dated, []))
    assert read_manifest(content)[0] == dated
    assert b"imagery_date" not in b"".join(format_manifest(HEADER, []))


def test_longest_header_fits_line_limit() -> None:
    name = "n" * 64
    key = PartitionKey(
        source=name, customer_id=name, query_name=name, logical_date=date(9999, 12, 31)
    )
    box = BBox(
        west=-0.123456789012345678,
        south=-1.123456789012345678e-300,
        east=1.123456789012345e-300,
        north=1.2345678901234567e-300,
    )
    area = Area(bbox=box, zoom_levels=range(22), sector_class=AREA.sector_class)
    counts = dict.fromkeys(("tiles_downloaded", "bytes_downloaded", "retry_count"), 10**19)
    header = create_header(area=area, stored=counts.pop("tiles_downloaded"), **counts)
    lines = list(format_manifest(evolve(header, key=key, run_id=RunId(name)), []))
    assert len(lines[0]) < LINE_BYTES_MAX / 2
    assert read_manifest(b"".join(lines))[0].key == key


@given(st.integers(0, len(MANIFEST) - 1))
def test_invariant_16_truncated_manifest_is_rejected(length: int) -> None:
    with pytest.raises(InvalidValueError, match=r"^manifest"):
        read_manifest(MANIFEST[:length])


@given(st.integers(0, len(MANIFEST) * 8 - 1))
def test_invariant_16_manifest_with_flipped_bit_is_rejected(bit: int) -> None:
    edited = bytearray(MANIFEST)
    edited[bit // 8] ^= 1 << bit % 8
    with pytest.raises(InvalidValueError, match=r"^manifest"):
        read_manifest(bytes(edited))


@pytest.mark.parametrize("lines", range(len(LINES)))
def test_invariant_16_manifest_without_last_lines_is_rejected(lines: int) -> None:
    with pytest.raises(InvalidValueError, match=r"^manifest\.(header|end): is (not JSON|missing)"):
        read_manifest(b"".join(LINES[:lines]))


@pytest.mark.parametrize("change", ["drop", "repeat", "swap"])
def test_invariant_16_dropped_repeated_or_swapped_line_is_rejected(change: str) -> None:
    lines = list(LINES)
    if change == "drop":
        del lines[5]
    elif change == "repeat":
        lines.insert(5, lines[5])
    else:
        lines[5], lines[6] = lines[6], lines[5]
    with pytest.raises(
        InvalidValueError,
        match=r"^manifest\.end\.(tiles|sha256): does not match the lines before it",
    ):
        read_manifest(b"".join(lines))


def test_content_after_end_line_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"^manifest\.end: is not the last line"):
        read_manifest(MANIFEST + LINES[3])
    with pytest.raises(InvalidValueError, match=r"^manifest: ends within a line"):
        read_manifest(MANIFEST + b"{")


def test_unterminated_line_is_rejected_at_size_limit() -> None:
    def endless() -> Iterator[bytes]:
        yield LINES[0]
        while True:
            yield b"x" * 1_000

    reader = ManifestReader.from_chunks(endless())
    with pytest.raises(InvalidValueError, match="a line longer than 4096 bytes"):
        list(reader.entries())


def test_overlong_line_in_one_chunk_is_rejected() -> None:
    long = LINES[1].replace(b"500", b"9" * 5_000)
    with pytest.raises(InvalidValueError, match=r"^manifest\.tiles\[0\]: is longer than 4096"):
        read_manifest(LINES[0] + long + LINES[-1], chunk=100_000)


def test_errors_use_given_manifest_name() -> None:
    with pytest.raises(InvalidValueError, match=r"^manifest of run r-7\.header: is not JSON"):
        ManifestReader.from_chunks([b"nonsense\n"], name="manifest of run r-7")
    with pytest.raises(InvalidValueError, match=r"^m\.end: has no line break"):
        parse_sealed_partition(MANIFEST, MANIFEST[:-1], name="m")
    with pytest.raises(InvalidValueError, match=r"^m\.end: is missing"):
        parse_sealed_partition(MANIFEST, LINES[1], name="m")
    with pytest.raises(InvalidValueError, match=r"^m\.header\.version: must be"):
        parse_sealed_partition(LINES[1], MANIFEST, name="m")


HOSTILE_TILE: list[tuple[str, Any]] = [
    ("tile", "../../etc/passwd"),
    ("tile", "satellite/14/99999999/1"),
    ("tile", "a..b/14/1/1"),
    ("tile", 7),
    ("segment", 0),
    ("segment", True),
    ("segment", "1"),
    ("offset", -1),
    ("length", 2**40),
    ("sha256", "AB" * 32),
    ("sha256", None),
    ("resolution_m_per_px", 0),
    ("resolution_m_per_px", "0.6"),
    ("resolution_m_per_px", [1]),
    ("produced_at", "yesterday"),
    ("produced_at", "2026-10-01T00:00:00"),
    ("produced_at", 7),
    ("freshness", "stale"),
    ("freshness", ["fresh"]),
]


@pytest.mark.parametrize(("name", "value"), HOSTILE_TILE)
def test_forged_tile_is_rejected_by_field(name: str, value: Any) -> None:
    line = json.dumps({**json.loads(LINES[3]), name: value}, separators=(",", ":")).encode()
    forged = [*LINES[:3], line + b"\n"]
    content = b"".join(forged) + LINES[-1]
    with pytest.raises(InvalidValueError, match=rf"^manifest\.tiles\[2\]\.{name}[.a-z]*: "):
        read_manifest(content)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[]\n", r"manifest\.tiles\[0\]: must be an object"),
        (b"\n", r"manifest\.tiles\[0\]: is not JSON"),
        (b"{}\n", r"manifest\.tiles\[0\]\.tile: is missing"),
        (LINES[1].replace(b'"tile"', b'"tiel"'), r"manifest\.tiles\[0\]\.tile: is missing"),
        (b'{"x":1,' + LINES[1][1:], r"manifest\.tiles\[0\]\.x: is not known"),
        (b'{"tile":"a",' + LINES[1][1:], r"manifest\.tiles\[0\]: has the key 'tile' twice"),
        (LINES[1].replace(b"0.6", b"NaN"), r"manifest\.tiles\[0\]\.resolution_m_per_px: is NaN"),
        (LINES[1].replace(b"500", b"9" * 5_000), r"manifest: has a line longer than 4096 bytes"),
        (LINES[1].replace(b"500", b"9" * 50), r"manifest\.tiles\[0\]\.length: is a whole number"),
        (b'{"end":7}\n', r"manifest\.end: must be an object"),
        (b'{"end":{"tiles":-1,"size_bytes":0,"sha256":""}}\n', r"manifest\.end\.tiles: must be"),
        (b'{"end":{},"x":1}\n', r"manifest\.x: is not known"),
    ],
)
def test_malformed_line_is_rejected_by_field(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^{problem}"):
        read_manifest(LINES[0] + line + LINES[-1])


HOSTILE_HEADER: list[tuple[tuple[str, ...], Any]] = [
    (("version",), 2),
    (("version",), True),
    (("partition",), "x"),
    (("partition", "source"), "../x"),
    (("partition", "customer_id"), ""),
    (("partition", "query_name"), 7),
    (("partition", "logical_date"), "20261025"),
    (("partition", "logical_date"), "soon"),
    (("partition", "logical_date"), 7),
    (("run_id",), "a/b"),
    (("area", "bbox"), "500,1,2,3"),
    (("area", "bbox"), "36,60,37,50"),
    (("area", "bbox"), [36, 50, 37, 60]),
    (("area", "zoom_levels"), [22]),
    (("area", "zoom_levels"), []),
    (("area", "zoom_levels"), 7),
    (("area", "sector_class"), "moon"),
    (("tiles_listed",), -1),
    (("tiles_listed",), 1.5),
    (("tally", "tiles_missing"), -1),
    (("tally", "tiles_downgraded"), 99),
    (("sealed_at",), None),
]


@pytest.mark.parametrize(("path", "value"), HOSTILE_HEADER)
def test_forged_header_is_rejected_by_field(path: tuple[str, ...], value: Any) -> None:
    header = json.loads(LINES[0])
    place = header
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    line = json.dumps(header, separators=(",", ":")).encode() + b"\n"
    with pytest.raises(InvalidValueError, match=rf"^manifest\.header\.{'.'.join(path)}[.a-z]*: "):
        read_manifest(seal_lines([line, *LINES[1:-1]]))


def test_header_tally_above_listed_tiles_is_rejected() -> None:
    with pytest.raises(
        InvalidValueError, match=r"PartitionHeader\.tally: accounts for more than the"
    ):
        create_header(5, listed=4)
    header = json.loads(LINES[0]) | {"tiles_listed": 20}
    with pytest.raises(InvalidValueError, match=r"^manifest\.header\.tally: accounts for more"):
        read_manifest(json.dumps(header).encode() + b"\n")


def test_header_rejects_an_area_as_text() -> None:
    with pytest.raises(InvalidValueError, match=r"PartitionHeader\.area: must be a Area"):
        evolve(HEADER, area="36,50,37,51")  # type: ignore[arg-type]


def test_oversized_area_is_rejected() -> None:
    header = json.loads(LINES[0])
    header["area"].update(bbox="-180,-85,180,85", zoom_levels=[21])
    with pytest.raises(InvalidValueError, match="has more than 50,000,000 tiles"):
        read_manifest(json.dumps(header).encode() + b"\n")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tile_id", "satellite/1/0/0"),
        ("blob", None),
        ("resolution_m_per_px", float("inf")),
        ("produced_at", datetime(2026, 1, 1)),  # noqa: DTZ001  # that is what is refused
        ("produced_at", NOW.astimezone(timezone(timedelta(hours=2)))),
        ("freshness", "fresh"),
    ],
)
def test_invalid_entry_is_rejected(field: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=rf"^ManifestEntry\.{field}: "):
        evolve(ENTRIES[0], **{field: value})


def test_entry_accepts_integer_resolution_and_any_utc_zone() -> None:
    utc = timezone(timedelta(0), "Zulu")
    entry = create_entry(TILES[0], resolution_m_per_px=1, produced_at=NOW.astimezone(utc))
    assert entry == create_entry(TILES[0], resolution_m_per_px=1.0, produced_at=NOW)
