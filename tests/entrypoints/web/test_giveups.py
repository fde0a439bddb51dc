"""The page of giveups, over HTTP."""

import html
import re

import httpx
import pytest
from support.web_site import RunningSite, give_up_tile

from tileferry.domain.tiles import TileId
from tileferry.entrypoints.web import giveups


def test_giveups_have_pictures_reasons_and_the_documented_sql(
    site: RunningSite, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles = [TileId.parse(f"late/14/9750/{5_500 + number}") for number in range(2)]
    for tile_id in tiles:
        give_up_tile(site.installation, tile_id, "F19", "<script>alert(1)</script>")
    page = client.get("/giveups?flight=F19").text
    for tile_id in tiles:
        assert client.get(f"/tiles/{tile_id}").headers["content-type"] == "image/jpeg"
        assert f'src="/tiles/{tile_id}"' in page
        sql = site.installation.giveups.get_giveup(tile_id).reopening_sql
        assert html.escape(sql).replace("&#x27;", "&#39;") in page
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert 'method="post"' not in page  # a person reopens a tile, never a page
    monkeypatch.setattr(giveups, "_SHOWN_MAX", 1)
    bounded = client.get("/giveups?flight=F19").text
    assert str(tiles[1]) not in bounded
    (rest,) = re.findall(r'href="(/giveups\?[^"]+after=[^"]+)">Next', bounded)
    page = client.get(html.unescape(rest)).text
    assert (str(tiles[1]) in page, str(tiles[0]) in page, "« First" in page) == (True, False, True)
    assert client.get("/giveups?after=a/b~sat/1/2/3").status_code == 400
    assert client.get("/giveups?after=F1~x").status_code == 400
    assert "No tile was given up." in client.get("/giveups?flight=F0").text
    assert client.get("/giveups?flight=a/b").status_code == 400
