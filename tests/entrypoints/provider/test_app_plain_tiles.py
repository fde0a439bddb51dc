"""The provider as a plain tile server: pictures by their numbers, for everybody."""

import pytest
from support.provider import RunningProvider

NUMBERS = "15/19679/11098"
PLAIN = f"/xyz/{NUMBERS}.jpg"


def test_xyz_tile_is_served_without_key_or_metadata(
    provider: RunningProvider,
) -> None:
    with provider.client() as known, provider.client(api_key=None) as anybody:
        told = known.get(f"/api/satellite/tiles/{NUMBERS}")
        plain = anybody.get(PLAIN)
    assert (plain.status_code, plain.content) == (200, told.content)
    assert plain.headers["content-type"] == "image/jpeg"
    assert not {"x-produced-at", "x-resolution-m-per-px", "repr-digest"} & plain.headers.keys()
    assert [line.path for line in provider.requests] == [told.request.url.path, PLAIN]
    assert provider.fetched[NUMBERS] == 2


@pytest.mark.parametrize("path", ["/xyz/2/4/0.jpg", "/xyz/x/0/0.jpg", "/xyz/2/-1/0.jpg"])
def test_invalid_xyz_path_is_rejected(provider: RunningProvider, path: str) -> None:
    with provider.client(api_key=None) as anybody:
        assert anybody.get(path).status_code == 400
        assert anybody.get("/xyz/2/1/0.png").status_code == 404
        assert anybody.post(PLAIN).status_code == 405


@pytest.mark.parametrize(("fault", "status"), [("503", 503), ("404", 404), ("429", 429)])
def test_faults_apply_to_xyz_tiles(provider: RunningProvider, fault: str, status: int) -> None:
    provider.set_faults({"fault": fault, "tile": NUMBERS})
    with provider.client(api_key=None) as anybody:
        assert anybody.get(PLAIN).status_code == status
        assert anybody.get("/xyz/2/1/0.jpg").status_code == 200
