"""The health page, over HTTP."""

import httpx


def test_page_has_navigation_skip_link_and_assets(client: httpx.Client) -> None:
    answer = client.get("/health")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-encoding"] == "gzip"
    assert 'href="/health" aria-current="page"' in answer.text
    assert 'href="#main"' in answer.text
    for part in answer.text.split('href="/static/')[1:] + answer.text.split('src="/static/')[1:]:
        asset = client.get(f"/static/{part.split(chr(34))[0]}")
        assert asset.status_code == 200
        assert asset.headers["cache-control"] == "max-age=31536000, immutable"
        etag = {"if-none-match": asset.headers["etag"]}
        assert client.get(asset.url.path, headers=etag).status_code == 304


def test_first_load_is_small(client: httpx.Client) -> None:
    paths = [
        "/map",
        "/static/x/console.js",
        "/static/x/console.css",
        "/static/x/leaflet/leaflet.js",
    ]
    sizes = [int(client.get(path).headers["content-length"]) for path in paths]
    assert sum(sizes) < 100_000


def test_metrics_and_health_are_answered_for_programs(client: httpx.Client) -> None:
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "tileferry_database_up 1.0" in metrics.text.splitlines()
    assert "tileferry_tiles " in metrics.text
    ready = client.get("/readyz")
    assert (ready.status_code, ready.text) == (200, "ok\n")
    assert client.get("/healthz").text == "ok\n"
    assert "set-cookie" not in metrics.headers
