"""The page of one tile, over HTTP."""

import httpx
from support.web_site import ABSENT, DOUBLE, HOLE, STORED, RunningSite, give_up_tile

from tileferry.domain.tiles import TileId


def test_stored_tile_shows_flight_row_and_picture(client: httpx.Client) -> None:
    page = client.get(f"/map/tile?tile={STORED}").text
    assert f'src="/tiles/{STORED}"' in page
    for text in ("F7", ">GO<", "0.6 m/px", "intact", "stable_rear: fresh", "No failed attempt"):
        assert text in page
    assert "<html" in page


def test_place_shows_the_tiles_of_all_sources_freshest_first(client: httpx.Client) -> None:
    page = client.get(f"/map/tile?tile={DOUBLE}&part=1").text
    assert page.index(f"/tiles/late/{DOUBLE}") < page.index(f"/tiles/early/{DOUBLE}")
    assert "<html" not in page
    one = client.get(f"/map/tile?tile=early/{DOUBLE}").text
    assert f"/tiles/late/{DOUBLE}" not in one
    assert "early/5/16/10" in one  # a tile of the next level, of the same source


def test_hole_shows_the_verdict_of_its_flight(client: httpx.Client) -> None:
    page = client.get(f"/map/tile?tile={HOLE}").text
    for text in ("Not in the cache", "NO-GO", "not in the cache"):
        assert text in page


def test_absent_tile_shows_when_it_was_absent(client: httpx.Client) -> None:
    page = client.get(f"/map/tile?tile={ABSENT}").text
    assert f"Absent: {ABSENT} on " in page
    assert "No flight needs this tile" in page


def test_given_up_tile_links_to_its_review(client: httpx.Client, site: RunningSite) -> None:
    tile = TileId.parse("late/14/9753/5600")
    give_up_tile(site.installation, tile, "F9", "blurred")
    page = client.get(f"/map/tile?tile={tile}").text
    assert 'href="/giveups?flight=F9"' in page
    assert "upload giveup" in page


def test_edges_of_the_pyramid_have_no_further_levels(client: httpx.Client) -> None:
    assert "zoom -1" not in client.get("/map/tile?tile=0/0/0").text
    assert "zoom 22" not in client.get("/map/tile?tile=21/5/5").text


def test_invalid_tile_is_explained(client: httpx.Client) -> None:
    for tile in ("x", "1/9/0", "../1/2/3"):
        answer = client.get("/map/tile", params={"tile": tile})
        assert answer.status_code == 400
        assert "TILE" in answer.text
