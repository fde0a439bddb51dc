"""Changes with a preview: the exact effect, a reason, and a typed count for many."""

import pytest
from support.things_page import APPLIED, SIZE, confirm, send
from support.web_site import RunningSite

from tileferry.entrypoints.web.changes import Confirmation


def test_change_is_previewed_confirmed_and_applied_with_its_actor(console: RunningSite) -> None:
    with console.client() as client:
        shown = send(client)
        assert "Change 3 things" in shown.text
        assert APPLIED == []
        done = confirm(client, shown.text)
        assert (done.status_code, done.headers["location"]) == (303, "/things")
        assert [Confirmation(by="tester@host", reason="a test", confirmed=None)] == APPLIED
        assert "Changed a." in client.get("/things").text
        assert "Changed a." not in client.get("/things").text


def test_change_whose_effect_drifted_is_shown_again(console: RunningSite) -> None:
    with console.client() as client:
        shown = send(client)
        SIZE["count"] = 4
        again = confirm(client, shown.text)
        assert again.status_code == 409
        assert "Change 4 things" in again.text
        assert APPLIED == []
        assert confirm(client, again.text).status_code == 303


def test_large_change_needs_its_count_typed(console: RunningSite) -> None:
    SIZE["count"] = 12
    with console.client() as client:
        shown = send(client)
        assert "Type 12 to confirm" in shown.text
        assert confirm(client, shown.text).status_code == 409
        assert confirm(client, shown.text, confirmed_count="11").status_code == 409
        assert APPLIED == []
        assert confirm(client, shown.text, confirmed_count="12").status_code == 303
        assert APPLIED[0].confirmed == 12


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501])
def test_change_needs_a_reason(console: RunningSite, reason: str) -> None:
    with console.client() as client:
        shown = send(client)
        refused = confirm(client, shown.text, reason=reason)
        assert refused.status_code == 400
        assert "reason" in refused.text
        assert APPLIED == []
