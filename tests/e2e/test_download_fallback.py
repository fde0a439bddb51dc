"""Two tile servers in order: the second fills the holes of the first, and each tile is labelled."""

from pathlib import Path

import pytest
from support.download_operator import XYZ_AREA, XYZ_DOWNLOAD, XYZ_TILES, XyzOperator
from support.hostile_provider import RawServer, respond_with, run_raw_server
from support.pictures import make_picture
from support.provider import RunningProvider

PICTURE = make_picture("of the secondary")
HEAD = f"HTTP/1.1 200 OK\nConnection: close\nContent-Length: {len(PICTURE)}"
HOLE = XYZ_TILES[3]
PLACE = f"{HOLE.zoom}/{HOLE.x}/{HOLE.y}"
KEY = "canary-of-the-secondary"


@pytest.fixture
def operator(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> XyzOperator:
    reference_provider.set_faults({"fault": "404", "tile": PLACE})
    return XyzOperator(tmp_path, database_url, reference_provider.url)


def set_secondary(operator: XyzOperator, server: RawServer) -> None:
    key = operator.home / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    given = {
        "URL_TEMPLATE": f"{server.url}/{{z}}/{{x}}/{{y}}?key={{api_key}}",
        "ATTRIBUTION": "© Second",
        "LICENCE": "CC0",
        "IMAGERY_DATE": "2026-09-01",
        "BULK_DOWNLOAD_ACKNOWLEDGED_FOR": server.url.rpartition("/")[2],
        "API_KEY_FILE": str(key),
    }
    operator.settings = {f"TILEFERRY_SECONDARY_{name}": text for name, text in given.items()}


def test_secondary_fills_holes_and_its_tiles_are_labelled(operator: XyzOperator) -> None:
    alone = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
    assert (alone.code, alone.json["tiles_missing"]) == (3, 1)
    with run_raw_server(respond_with(HEAD, PICTURE)) as server:
        set_secondary(operator, server)
        ran = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
        assert ran.code == 0, ran.err
        assert (ran.json["tiles_downloaded"], ran.json["tiles_missing"]) == (len(XYZ_TILES), 0)
        (request,) = server.requests
        assert request.startswith(f"GET /{PLACE}?key={KEY} ".encode()), "only for the hole"
        again = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
        assert again.json["outcome"] == "idempotent_no_op"
    assert operator.read_stored_tiles([HOLE]) == [PICTURE]
    explained = operator.run_in_process("cache", "explain", PLACE, "--json").json["versions"][0]
    assert explained["origin"].startswith("xyz-localhost")
    assert explained["tile_id"].startswith("xyz-127.0.0.1")
    assert explained["produced_at"].startswith("2026-09-01")
    other = XYZ_TILES[0]
    place = f"{other.zoom}/{other.x}/{other.y}"
    own = operator.run_in_process("cache", "explain", place, "--json").json["versions"][0]
    assert own["tile_id"].startswith(f"{own['origin']}/")
    coverage = operator.run_in_process("coverage", *XYZ_AREA, "--json").json
    assert coverage["attribution"] == "© Example contributors; © Second"
    assert KEY not in operator.read_all_files().decode("latin-1").replace(f"key\n{KEY}", "")


def test_hole_of_both_is_absent_and_remembered(operator: XyzOperator) -> None:
    with run_raw_server(respond_with("HTTP/1.1 404 No\nConnection: close")) as server:
        set_secondary(operator, server)
        for _ in range(2):
            ran = operator.run_in_process(*XYZ_DOWNLOAD, "--json")
            assert (ran.code, ran.json["tiles_missing"]) == (3, 1)
    assert len(server.requests) == 1


def test_doctor_checks_both_servers(operator: XyzOperator) -> None:
    with run_raw_server(respond_with("HTTP/1.1 404 No\nConnection: close")) as server:
        set_secondary(operator, server)
        found = operator.run_in_process("doctor")
    shown = " ".join(found.out.split())
    assert "serves images" in shown
    assert "does not have the tile 0/0/0" in shown
    assert "secondary.sample_tile" in shown
    assert found.code != 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("API_KEY_FILE", "", "secondary.api_key_file: is not set"),
        ("IMAGERY_DATE", "", "secondary.imagery_date: is not set"),
        ("BULK_DOWNLOAD_ACKNOWLEDGED_FOR", "", "secondary.bulk_download_acknowledged_for"),
        ("TILEJSON_URL", "https://h.example/t.json", "and so is secondary.tilejson_url"),
        ("URL_TEMPLATE", "{same}", "has the source name of the first source"),
        ("SUBDOMAINS", "a b", "secondary.subdomains"),
    ],
)
def test_invalid_setting_of_the_secondary_is_named(
    operator: XyzOperator, name: str, value: str, said: str
) -> None:
    set_secondary(operator, RawServer("http://localhost:1"))
    same = f"{operator.provider_url}/{{z}}/{{x}}/{{y}}"
    operator.settings[f"TILEFERRY_SECONDARY_{name}"] = same if value == "{same}" else value
    if value == "{same}":
        acknowledged = operator.provider_url.rpartition("/")[2]
        operator.settings["TILEFERRY_SECONDARY_BULK_DOWNLOAD_ACKNOWLEDGED_FOR"] = acknowledged
    ran = operator.run_in_process(*XYZ_DOWNLOAD)
    assert ran.code in {2, 4}
    assert said in " ".join(ran.err.split())
