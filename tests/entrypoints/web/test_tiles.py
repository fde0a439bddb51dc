"""The map service over real HTTP: tiles, their metadata and their errors."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
from PIL import Image
from support.web_site import (
    ABSENT,
    COARSE,
    DOUBLE,
    HOLE,
    HOSTILE,
    HOSTILE_CONTENT,
    STORED,
    RunningSite,
    add_tiles,
    make_tile_picture,
    serve_site,
)

from tileferry.adapters.postgres import PostgresMapIndex
from tileferry.domain.errors import DatabaseError
from tileferry.domain.tiles import TileId


def test_tile_is_served_with_type_etag_and_source(client: httpx.Client) -> None:
    answer = client.get(f"/tiles/{STORED}.jpg")
    assert answer.status_code == 200
    assert Image.open(io.BytesIO(answer.content)).size == (256, 256)
    assert answer.headers["content-type"] == "image/jpeg"
    assert answer.headers["x-tile-source"] == "sat"
    assert answer.headers["cache-control"] == "public, max-age=60"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "set-cookie" not in answer.headers
    again = client.get(f"/tiles/{STORED}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == answer.headers["etag"]
    other = client.get(f"/tiles/{STORED}", headers={"if-none-match": '"0"'})
    assert other.content == answer.content


def test_head_has_the_headers_without_the_tile(client: httpx.Client) -> None:
    full, head = client.get(f"/tiles/{STORED}"), client.head(f"/tiles/{STORED}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(full.content))
    assert head.headers["etag"] == full.headers["etag"]


def test_merged_layer_serves_the_freshest_source(client: httpx.Client) -> None:
    answer = client.get(f"/tiles/merged/{DOUBLE}")
    assert answer.headers["x-tile-source"] == "late"
    assert answer.headers["content-type"] == "image/png"
    assert client.get(f"/tiles/early/{DOUBLE}").headers["x-tile-source"] == "early"


@pytest.mark.parametrize(
    ("path", "reason", "detail"),
    [
        (f"/tiles/{HOLE}", "not_stored", "F7"),
        (f"/tiles/{ABSENT}", "absent_at_provider", "provider"),
        ("/tiles/sat/14/5/5", "never_requested", "no flight"),
        ("/tiles/sat/3/9/0", "invalid_tile", "0 to 7"),
        ("/tiles/sat/99/0/0", "invalid_tile", "0 to 21"),
        ("/tiles/sat/1/0", "unknown_path", "{layer}"),
        ("/tiles/sat/1/0/-1", "unknown_path", "{layer}"),
        ("/tiles/none.json", "unknown_layer", "none"),
    ],
)
def test_missing_tile_answer_has_the_reason(
    client: httpx.Client, path: str, reason: str, detail: str
) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.json()["reason"] == reason
    assert detail in answer.json()["detail"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/tiles/..%2f..%2fetc/1/0/0", "/tiles/sat/1/0/0/../../../etc/passwd", "/tiles/sat%00/1/0/0",
        "/tiles/SAT/1/0/0", "/tiles/sat/01/0/0x", "/tiles/sat/1/0/%d9%a1", "/tiles/'/1/0/0",
    ],
)  # fmt: skip
def test_path_tricks_find_nothing(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_invariant_37_hostile_content_is_never_a_page(client: httpx.Client) -> None:
    answer = client.get(f"/tiles/{HOSTILE}.png")
    assert answer.content == HOSTILE_CONTENT
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_our_own_map_gets_an_empty_picture_for_a_missing_tile(client: httpx.Client) -> None:
    answer = client.get(f"/tiles/{HOLE}?missing=blank")
    assert (answer.status_code, answer.headers["x-tile-missing"]) == (200, "not_stored")
    assert Image.open(io.BytesIO(answer.content)).size == (1, 1)


def test_tilejson_describes_a_layer(site: RunningSite, client: httpx.Client) -> None:
    found = client.get("/tiles/sat.json").json()
    assert found["tilejson"] == "3.0.0"
    assert found["tiles"] == [f"{site.url}/tiles/sat/{{z}}/{{x}}/{{y}}"]
    assert (found["minzoom"], found["maxzoom"]) == (10, 14)
    west, south, east, north = found["bounds"]
    assert west < east
    assert south < north
    merged = client.get("/tiles/merged.json").json()
    assert (merged["minzoom"], merged["maxzoom"]) == (4, 14)


def test_damaged_tile_is_an_error_without_its_bytes(database_url: str, tmp_path: Path) -> None:
    with serve_site(tmp_path, database_url) as site, site.client() as client:
        tile = TileId.parse("sat/5/3/2")
        picture = make_tile_picture("#123456")
        add_tiles(site.installation, {tile: picture})
        (segment,) = (tmp_path / "cache/.c6/segments").glob("*.seg")
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        answer = client.get(f"/tiles/{tile}")
        assert answer.status_code == 500
        assert answer.json()["reason"] == "DamagedTileError"
        assert "cache verify" in answer.json()["detail"]
        assert picture[:100] not in answer.content


def test_many_requests_at_a_time_get_their_own_answers(site: RunningSite) -> None:
    paths = [
        f"/tiles/{STORED}",
        f"/tiles/{HOLE}",
        f"/tiles/merged/{DOUBLE}",
        "/tiles/sat/3/9/0",
    ] * 8
    with site.client() as client, ThreadPoolExecutor(len(paths)) as threads:
        answers = list(threads.map(client.get, paths))
    codes = [answer.status_code for answer in answers]
    assert codes == [200, 404, 200, 404] * 8
    for number, path in enumerate(paths):
        assert answers[number].content == answers[number % 4].content, path


def test_defect_in_a_batch_leaves_each_job_to_itself(
    site: RunningSite, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_jobs: object) -> NoReturn:
        raise RuntimeError("a defect")

    monkeypatch.setattr(site.server.app._tiles._queue, "answer_many", fail)
    assert client.get(f"/tiles/{STORED}").status_code == 200


def test_absent_database_is_reported_as_unavailable(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise DatabaseError(problem="cannot be reached", remedy="start it")

    monkeypatch.setattr(PostgresMapIndex, "find_tiles", fail)
    monkeypatch.setattr(PostgresMapIndex, "find_tile", fail)
    answer = client.get(f"/tiles/{STORED}")
    assert (answer.status_code, answer.json()["reason"]) == (503, "DatabaseError")


def test_upscaled_parent_is_marked_and_sharing_is_by_setting(
    shared_database_url: str,
    site: RunningSite,  # noqa: ARG001  # fills the cache
    web_home: Path,
) -> None:
    serve = {"upscale_levels": 4, "cors_origins": ["https://map.example"], "tile_max_age_s": 5}
    with serve_site(web_home, shared_database_url, serve) as other, other.client() as client:
        answer = client.get(f"/tiles/{HOLE}")
        assert answer.headers["x-tile-upscaled-from"] == str(COARSE)
        assert answer.headers["content-type"] == "image/png"
        assert "etag" not in answer.headers
        assert Image.open(io.BytesIO(answer.content)).size == (256, 256)
        assert client.get("/tiles/sat/14/5/5").status_code == 404
        page = {"origin": "https://map.example"}
        shared = client.get(f"/tiles/{STORED}", headers=page)
        assert shared.headers["access-control-allow-origin"] == "https://map.example"
        assert shared.headers["cross-origin-resource-policy"] == "cross-origin"
        assert shared.headers["cache-control"] == "public, max-age=5"
        assert client.options(f"/tiles/{STORED}", headers=page).status_code == 204
        foreign = client.get(f"/tiles/{STORED}", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in foreign.headers
        assert foreign.headers["cross-origin-resource-policy"] == "same-origin"


def test_tiles_are_not_shared_with_other_sites_by_default(client: httpx.Client) -> None:
    answer = client.get(f"/tiles/{STORED}", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert client.post(f"/tiles/{STORED}").status_code in {403, 405, 415}
