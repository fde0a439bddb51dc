"""WMTS: capabilities, both ways to ask for a tile, errors, and GDAL as a client."""

import xml.etree.ElementTree as ET

import httpx
import pytest
import rasterio
from rasterio.warp import transform_bounds
from rasterio.windows import from_bounds
from support.web_site import HOLE, STORED, RunningSite

from tileferry.domain.tiles.mercator import block_bounds

_BOX = block_bounds(STORED.zoom, x_min=STORED.x, x_max=STORED.x, y_min=STORED.y, y_max=STORED.y)
STORED_BOX = (_BOX.west, _BOX.south, _BOX.east, _BOX.north)
NAMES = {"ows": "http://www.opengis.net/ows/1.1", "": "http://www.opengis.net/wmts/1.0"}
GET_TILE = {
    "SERVICE": "WMTS",
    "REQUEST": "GetTile",
    "VERSION": "1.0.0",
    "LAYER": STORED.source,
    "STYLE": "default",
    "FORMAT": "image/jpeg",
    "TILEMATRIXSET": "GoogleMapsCompatible",
    "TILEMATRIX": str(STORED.zoom),
    "TILEROW": str(STORED.y),
    "TILECOL": str(STORED.x),
}


def test_capabilities_list_layers_with_their_limits(client: httpx.Client) -> None:
    answer = client.get("/wmts/1.0.0/WMTSCapabilities.xml")
    assert answer.headers["content-type"].startswith("application/xml")
    root = ET.fromstring(answer.text)  # noqa: S314  # our own answer
    layers = root.findall("Contents/Layer", NAMES)
    assert [layer.findtext("ows:Identifier", namespaces=NAMES) for layer in layers] == [
        "merged", "early", "late", "sat",
    ]  # fmt: skip
    limits = layers[3].findall(".//TileMatrixLimits", NAMES)
    assert [limit.findtext("TileMatrix", namespaces=NAMES) for limit in limits] == ["10", "14"]
    assert client.get("/wmts?service=WMTS&request=GetCapabilities").text == answer.text
    assert client.get("/wmts").text == answer.text


def test_tile_is_the_same_by_address_and_by_pairs(client: httpx.Client) -> None:
    plain = client.get(f"/tiles/{STORED}")
    tile = f"{STORED.zoom}/{STORED.y}/{STORED.x}"
    place = f"/wmts/sat/default/GoogleMapsCompatible/{tile}"
    assert client.get(f"/wmts/sat/default/levels-sat/{tile}").content == plain.content
    assert client.get(f"/wmts/sat/default/levels-late/{tile}").status_code == 404
    assert client.get(place).content == client.get(f"{place}.jpg").content == plain.content
    lower = {name.lower(): value for name, value in GET_TILE.items()}
    for pairs in (GET_TILE, lower):
        answer = client.get("/wmts", params=pairs)
        assert answer.content == plain.content
        assert answer.headers["etag"] == plain.headers["etag"]


def test_missing_tile_answer_has_the_reason(client: httpx.Client) -> None:
    pairs = {**GET_TILE, "TILEROW": str(HOLE.y), "TILECOL": str(HOLE.x)}
    assert client.get("/wmts", params=pairs).json()["reason"] == "not_stored"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"SERVICE": "WMS"}, "InvalidParameterValue"),
        ({"REQUEST": "GetFeatureInfo"}, "OperationNotSupported"),
        ({"TILEMATRIXSET": "other"}, "InvalidParameterValue"),
        ({"TILEROW": "x"}, "InvalidParameterValue"),
        ({"LAYER": "../etc"}, "InvalidParameterValue"),
        ({"TILECOL": None}, "MissingParameterValue"),
    ],
)
def test_wrong_pairs_are_explained(
    client: httpx.Client, changes: dict[str, str | None], code: str
) -> None:
    pairs = {name: text for name, text in {**GET_TILE, **changes}.items() if text is not None}
    answer = client.get("/wmts", params=pairs)
    assert answer.status_code == 400
    assert f'exceptionCode="{code}"' in answer.text


def test_gdal_reads_the_layer(site: RunningSite) -> None:
    address = f"WMTS:{site.url}/wmts/1.0.0/WMTSCapabilities.xml,layer=sat"
    with rasterio.Env(GDAL_HTTP_PROXY="", GDAL_HTTP_NOPROXY="127.0.0.1"):
        try:
            dataset = rasterio.open(address)
        except rasterio.errors.RasterioIOError as error:
            if "not recognized" in str(error):
                pytest.skip("not run: WMTS with GDAL; this GDAL has no WMTS driver")
            raise
        with dataset:
            assert dataset.crs.to_epsg() == 3857
            assert dataset.count in {3, 4}
            corner = transform_bounds("EPSG:4326", "EPSG:3857", *STORED_BOX)
            window = from_bounds(*corner, dataset.transform)
            # In full: with fewer pixels GDAL asks for a coarser level, which is not stored.
            bands = dataset.read((1, 2, 3), window=window)
            middle = [int(band[band.shape[0] // 2, band.shape[1] // 2]) for band in bands]
            assert middle == pytest.approx([0x3A, 0x7D, 0x44], abs=6)
