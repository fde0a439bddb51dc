"""Downloads from tile servers that we did not write; see ``_docs/sources.md``."""

from pathlib import Path

import httpx
import pytest
from attrs import evolve
from support.download_operator import XyzOperator
from support.real_servers import (
    AREA,
    TILES,
    ZOOMS,
    draw_tile,
    run_mapproxy,
    run_nginx,
    run_tileserver_gl,
    run_titiler,
    write_tree,
)

from tileferry.domain.tiles.server_url import ServerUrl

DOWNLOAD = (
    *("download", "--bbox", str(AREA), "--zoom", ",".join(map(str, ZOOMS))),
    *("--flight", "F1", "--sector", "stable_rear", "--json"),
)
DRAWN = [draw_tile(tile) for tile in TILES]


def use_server(operator: XyzOperator, setting: str, url: str, **more: str) -> None:
    """Configure the server; its template or document is at ``url``."""
    host = url.split("/")[2]
    operator.settings = {
        "TILEFERRY_XYZ_BULK_DOWNLOAD_ACKNOWLEDGED_FOR": host,
        **({} if setting == "URL_TEMPLATE" else {"TILEFERRY_XYZ_URL_TEMPLATE": ""}),
        **{f"TILEFERRY_XYZ_{name}": value for name, value in more.items()},
        f"TILEFERRY_XYZ_{setting}": url,
    }


def download(operator: XyzOperator, url: str) -> list[bytes]:
    """Download the area; return what the cache then has, tile by tile."""
    checked = operator.run_in_process("doctor")
    assert "serves images" in checked.out, checked.out
    ran = operator.run_in_process(*DOWNLOAD)
    assert ran.code == 0, ran.err
    assert ran.json["tiles_downloaded"] == len(TILES)
    source = ServerUrl(f"{'/'.join(url.split('/')[:3])}/").source
    named = [evolve(tile, source=source) for tile in TILES]
    return super(XyzOperator, operator).read_stored_tiles(named)


@pytest.fixture
def operator(tmp_path: Path, database_url: str) -> XyzOperator:
    return XyzOperator(tmp_path, database_url, "http://127.0.0.1:1")


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a server."""
    folder = tmp_path_factory.mktemp("site")
    write_tree(folder / "tiles")
    return folder


@pytest.mark.parametrize(
    ("path", "locations"),
    [
        ("/{z}/{x}/{y}.png", "types { }"),
        ("/{z}/{x}/{y}.png", "location / { types { image/png png; } gzip on; }"),
        ("/old/{z}/{x}/{y}{r}.png", "location /old/ { rewrite ^/old(/.*)$ $1 permanent; }"),
        ("/{a-c}/{z}/{x}/{y}.png", "rewrite ^/[abc](/.*)$ $1;"),
    ],
    ids=["octet-stream", "image", "redirect", "servers"],
)
def test_nginx_with_a_folder_of_tiles(
    operator: XyzOperator, site: Path, path: str, locations: str
) -> None:
    with run_nginx(site, locations) as url:
        use_server(operator, "URL_TEMPLATE", f"{url}{path}", SAMPLE_TILE="10/614/346")
        assert download(operator, url) == DRAWN


def test_nginx_with_rows_from_the_south(operator: XyzOperator, site: Path) -> None:
    write_tree(site / "tiles/tms", tms=True)
    with run_nginx(site, "") as url:
        template = f"{url}/tms/{{z}}/{{x}}/{{-y}}.png"
        use_server(operator, "URL_TEMPLATE", template, SAMPLE_TILE="10/614/346")
        assert download(operator, url) == DRAWN


def test_nginx_that_redirects_elsewhere_is_refused_by_doctor_and_download(
    operator: XyzOperator, site: Path
) -> None:
    with run_nginx(site, "location / { return 302 https://cdn.example$uri?sig=hidden; }") as url:
        use_server(operator, "URL_TEMPLATE", f"{url}/{{z}}/{{x}}/{{y}}.png")
        checked, ran = operator.run_in_process("doctor"), operator.run_in_process(*DOWNLOAD)
    assert (checked.code, ran.code) == (5, 5)
    shown = " ".join((checked.out + ran.err).split())
    assert "redirects to https://cdn.example/10/" in shown
    assert "hidden" not in shown


def test_tileserver_gl_by_its_tilejson(
    operator: XyzOperator, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with run_tileserver_gl(tmp_path_factory.mktemp("tileserver")) as url:
        tile = httpx.get(f"{url}/data/imagery/10/614/346.png", headers={"Accept-Encoding": ""})
        assert tile.headers["content-encoding"] == "gzip", "although it was not asked to"
        use_server(operator, "TILEJSON_URL", f"{url}/data/imagery.json")
        assert download(operator, url) == DRAWN


@pytest.mark.parametrize(
    "path", ["/wmts/1.0.0/WMTSCapabilities.xml", "/service?REQUEST=GetCapabilities&SERVICE=WMTS"]
)
def test_mapproxy_by_its_capabilities(
    operator: XyzOperator, site: Path, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    with (
        run_nginx(site, "types { image/png png; }") as origin,
        run_mapproxy(tmp_path_factory.mktemp("mapproxy"), origin) as url,
    ):
        use_server(operator, "WMTS_URL", f"{url}{path}", SAMPLE_TILE="10/614/346")
        refused = operator.run_in_process(*DOWNLOAD)
        assert refused.code == 2
        assert "set it to one of: imagery, other" in " ".join(refused.err.split())
        operator.settings["TILEFERRY_XYZ_WMTS_LAYER"] = "imagery"
        assert download(operator, url) == DRAWN


def test_titiler_by_its_tilejson(
    operator: XyzOperator, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with run_titiler(tmp_path_factory.mktemp("titiler")) as url:
        use_server(operator, "TILEJSON_URL", url, SAMPLE_TILE="10/614/346")
        stored = download(operator, url)
        template = httpx.get(url, trust_env=False).json()["tiles"][0]
        served = [
            httpx.get(template.format(z=tile.zoom, x=tile.x, y=tile.y), trust_env=False).content
            for tile in TILES
        ]
    assert stored == served
