"""The areas of a command line."""

from pathlib import Path

import pytest
import typer

from tileferry.domain.errors import InvalidValueError
from tileferry.domain.tiles import BBox
from tileferry.entrypoints.cli.areas import (
    parse_boxes,
    parse_coverages,
    parse_one_coverage,
    parse_zooms,
)
from tileferry.entrypoints.config import Config

BOX, OTHER = "36.1,49.9,36.4,50.1", "37.1,49.9,37.4,50.1"


@pytest.mark.parametrize(
    ("bbox", "zoom", "told"),
    [
        ("1,2", "15", "--bbox: is not of the form W,S,E,N"),
        ("36.1,x,36.4,50.1", "15", "--bbox south: is not a decimal number"),
        ("36.1,50.1,36.4,49.9", "15", "--bbox south: must be less than north, 49.9 (got 50.1)"),
        ("36.4,49.9,36.1,50.1", "15", "--bbox west: west and east look swapped"),
        ("36.1,49.9,36.1,50.1", "15", "--bbox east: is the same meridian as west"),
        ("36.1,49.9,36.4,95", "15", "--bbox north: must be a finite number from -90"),
        (BOX, "99", "--zoom: must be a whole number from 0 to 21 (got 99)"),
        (BOX, "15-", "--zoom: is not a list of zoom levels"),
    ],
)
def test_invalid_bbox_or_zoom_is_rejected_by_option_name(bbox: str, zoom: str, told: str) -> None:
    with pytest.raises(InvalidValueError) as refusal:
        parse_coverages(Config(), [BOX, bbox], None, zoom)
    assert str(refusal.value).startswith(told)


def test_zoom_levels_are_sorted_and_deduplicated() -> None:
    assert parse_zooms("16,13-15, 14") == (13, 14, 15, 16)


def test_every_area_is_used_once() -> None:
    config = Config(areas={"camp": "38.1,49.9,38.4,50.1", "same": OTHER})
    found = parse_boxes(config, [BOX, OTHER, BOX], ["camp", "same"])
    assert [str(item.box) for item in found] == [BOX, OTHER, "38.1,49.9,38.4,50.1"]
    assert [item.name for item in found] == [None, "same", "camp"]
    assert str(found[0]) == BBox.parse(BOX).in_words
    assert str(found[2]).startswith("camp: 38.1")
    zooms = [coverage.zoom_levels for coverage in parse_coverages(config, [BOX, OTHER], None, "13")]
    assert zooms == [(13,), (13,)]


def test_area_is_required_and_may_be_limited_to_one() -> None:
    with pytest.raises(typer.BadParameter, match="--bbox or --area"):
        parse_boxes(Config(), None, [])
    with pytest.raises(typer.BadParameter, match="one area only"):
        parse_one_coverage(Config(), [BOX, OTHER], None, "13")
    assert parse_one_coverage(Config(), [BOX, BOX], None, "13").bbox == BBox.parse(BOX)


def test_unknown_area_name_lists_configured_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError) as nowhere:
        parse_coverages(Config(), None, ["depot"], "15")
    assert str(nowhere.value).endswith(
        "known names: none; there is no tileferry.toml in this folder"
    )
    Path("tileferry.toml").touch()
    with pytest.raises(InvalidValueError, match=r"known names: none$"):
        parse_coverages(Config(), None, ["depot"], "15")
    with pytest.raises(InvalidValueError, match=r"known names: camp$"):
        parse_coverages(Config(areas={"camp": BOX}), None, ["depot"], "15")
