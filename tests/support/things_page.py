"""A page of the console that can change something, for tests."""

import httpx
from starlette.responses import Response

from support.web_site import find_csrf_token
from tileferry.entrypoints.web.changes import Change, Confirmation, Preview
from tileferry.entrypoints.web.site import Page, PageRequest, PageRoute

APPLIED: list[Confirmation] = []
SIZE = {"count": 3}


def preview(request: PageRequest) -> Preview:
    count = SIZE["count"]
    return Preview(
        title=f"Change {count} things",
        count=count,
        noun="thing",
        plan={"count": count, "name": request.form.get("name", "")},
        columns=["name"],
        rows=[[request.form.get("name", "")]],
    )


def apply(request: PageRequest, confirmation: Confirmation) -> str:
    APPLIED.append(confirmation)
    return f"Changed {request.form['name']}."


def show_form(request: PageRequest) -> Response:
    return request.render("preview.html", _build_view(request))


def _build_view(request: PageRequest) -> dict[str, object]:
    return {
        "title": "Things",
        "change": CHANGE,
        "preview": preview(request),
        "carried": {},
        "problem": "",
        "reason": "",
    }


CHANGE = Change(path="/things/change", back="/things", preview=preview, apply=apply)
THINGS = Page(
    title="Things", path="/things", routes=(PageRoute("/things", show_form), *CHANGE.routes)
)


def send(client: httpx.Client, *, token: str | None = None, **more: str) -> httpx.Response:
    """Send the change as our own form does."""
    if token is None:
        token = find_csrf_token(client.get("/things").text)
    return client.post("/things/change", data={"csrf_token": token, "name": "a", **more})


def confirm(client: httpx.Client, page: str, **more: str) -> httpx.Response:
    fields = {
        "csrf_token": find_csrf_token(page),
        "plan_hash": page.split('name="plan_hash" value="')[1].split('"', maxsplit=1)[0],
        "name": "a",
        "reason": "a test",
    }
    return client.post("/things/change/apply", data={**fields, **more})
