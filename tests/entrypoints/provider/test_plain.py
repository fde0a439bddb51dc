"""The provider as a plain tile server: pictures by their numbers, for everybody."""

import pytest
from support.provider import RunningProvider

NUMBERS = "15/19679/11098"
PLAIN = f"/xyz/{NUMBERS}.jpg"


def test_a_picture_is_there_without_a_key_and_nothing_is_said_of_it(
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
def test_what_is_no_tile_is_refused(provider: RunningProvider, path: str) -> None:
    with provider.client(api_key=None) as anybody:
        assert anybody.get(path).status_code == 400
        assert anybody.get("/xyz/2/1/0.png").status_code == 404
        assert anybody.post(PLAIN).status_code == 405


@pytest.mark.parametrize(("fault", "status"), [("503", 503), ("404", 404), ("429", 429)])
def test_it_has_the_same_faults(provider: RunningProvider, fault: str, status: int) -> None:
    provider.misbehave({"fault": fault, "tile": NUMBERS})
    with provider.client(api_key=None) as anybody:
        assert anybody.get(PLAIN).status_code == status
        assert anybody.get("/xyz/2/1/0.jpg").status_code == 200
