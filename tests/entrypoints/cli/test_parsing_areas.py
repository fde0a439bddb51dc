"""Areas and zoom levels: what is refused is named as the operator knows it."""

from pathlib import Path

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.cli.parsing import parse_coverage, parse_zooms
from tileferry.entrypoints.config import Config

BOX = "36.1,49.9,36.4,50.1"


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
        parse_coverage(Config(), bbox, None, zoom)
    assert str(refusal.value).startswith(told)


def test_zoom_levels_are_sorted_and_deduplicated() -> None:
    assert parse_zooms("16,13-15, 14") == (13, 14, 15, 16)


def test_unknown_area_name_lists_configured_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError) as nowhere:
        parse_coverage(Config(), None, "depot", "15")
    assert str(nowhere.value).endswith(
        "known names: none; there is no tileferry.toml in this folder"
    )
    Path("tileferry.toml").touch()
    with pytest.raises(InvalidValueError, match=r"known names: none$"):
        parse_coverage(Config(), None, "depot", "15")
    with pytest.raises(InvalidValueError, match=r"known names: camp$"):
        parse_coverage(Config(areas={"camp": BOX}), None, "depot", "15")
