"""The application: the guard, then tiles, live updates, files and pages."""

import asyncio
from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qsl, unquote

from attrs import define, field
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from tileferry.domain.errors import (
    DamagedTileError,
    DatabaseError,
    MisuseError,
    NotFoundError,
    TileManagerError,
    TileNotFoundError,
)
from tileferry.domain.text import printable
from tileferry.domain.web_safety import SAFE_METHODS, Session
from tileferry.entrypoints.cli.exit_codes import ExitCode, get_exit_code
from tileferry.entrypoints.cli.remedies import describe_error
from tileferry.entrypoints.web import guard
from tileferry.entrypoints.web.assets import PREFIX as STATIC_PREFIX
from tileferry.entrypoints.web.guard import Guard
from tileferry.entrypoints.web.live import LiveFeeds
from tileferry.entrypoints.web.site import PageRequest, PageRoute, Site, compress, log_crash
from tileferry.entrypoints.web.tiles import TileEndpoint

_WAITING_MAX = 64
"""Requests for pages that may wait for a thread; more are refused."""
_LIVE_PREFIX = "/live/"
_HEALTH_PATHS = ("/metrics", "/healthz", "/readyz")
_QUERY_BYTES_MAX = 8_192
_NAME_CHARS_MAX = 64
_THEMES = ("light", "dark")
_STATUS: Mapping[ExitCode, int] = {
    ExitCode.USAGE: 400,
    ExitCode.REFUSED: 409,
    ExitCode.PARTIAL: 409,
    ExitCode.PROVIDER_FAILED: 502,
    ExitCode.AUTHENTICATION: 502,
    ExitCode.FATAL: 500,
}


def get_status(error: TileManagerError) -> int:
    """Return the HTTP status of an error."""
    match error:
        case NotFoundError() | TileNotFoundError():
            return 404
        case DatabaseError():
            return 503
        case DamagedTileError():
            return 500
        case _:
            return _STATUS[get_exit_code(error)]


@define(eq=False)
class WebApp:
    """Dispatches requests that the guard has admitted."""

    site: Site
    feeds: LiveFeeds = field(init=False)
    guard: Guard = field(init=False)
    _tiles: TileEndpoint = field(init=False)
    _routes: list[tuple[object, PageRoute]] = field(factory=list, init=False)
    _waiting: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.feeds = LiveFeeds(self.site)
        self.guard = Guard(self._dispatch, self.site.settings)
        self._tiles = TileEndpoint(self.site)
        for page in self.site.pages:
            self._routes += [(compile_path(route.path)[0], route) for route in page.routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.guard(scope, receive, send)

    def close(self) -> None:
        self._tiles.close()
        self.site.close()

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self._tiles.serves(path, scope["query_string"]):
            await self._tiles(scope, receive, send)
            return
        if path in _HEALTH_PATHS:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self.site.page_threads, self._answer_health, path)
            await answer(scope, receive, send)
            return
        if path.startswith(_LIVE_PREFIX):
            await self._serve_feed(path.removeprefix(_LIVE_PREFIX), scope, receive, send)
            return
        response = await self._answer(scope)
        await response(scope, receive, send)

    def _answer_health(self, path: str) -> Response:
        """Answer a request for metrics or health."""
        headers = {"cache-control": "no-store"}
        try:
            metrics = self.site.get_metrics()
        except TileManagerError as error:
            is_extra_missing = isinstance(error, MisuseError)
            status = 200 if path == "/healthz" else 501 if is_extra_missing else 503
            return PlainTextResponse(f"{describe_error(error)}\n", status, headers)
        found = metrics.answer(path)
        return Response(found.content, found.status, headers, found.content_type)

    async def _answer(self, scope: Scope) -> Response:
        path: str = scope["path"]
        if path.startswith(STATIC_PREFIX):
            return self._answer_file(scope)
        if path == guard.LOGIN_PATH:
            return self._answer_login(scope)
        if path == "/logout" and scope["method"] == "POST":
            return self._with_cookie(RedirectResponse("/", 303), None)
        request = self._build_request(scope)
        for pattern, route in self._routes:
            match = pattern.match(path)  # type: ignore[attr-defined]  # a compiled pattern
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            if match is not None and route.method == method:
                params = {name: unquote(value) for name, value in match.groupdict().items()}
                return await self._run(route, request.with_params(**params), scope)
        if scope["method"] not in SAFE_METHODS:
            return self._fail(request, 405, "Method not allowed", f"{path} cannot be changed")
        return self._fail(request, 404, "Page not found", f"{printable(path)} does not exist.")

    async def _run(self, route: PageRoute, request: PageRequest, scope: Scope) -> Response:
        """Run a handler in a thread; show its errors with the same text as on the command line."""
        if self._waiting >= _WAITING_MAX:
            return self._fail(request, 503, "Busy", "Too many pages are waiting. Try again later.")
        self._waiting += 1
        accepted = scope[guard.HEADERS].get(b"accept-encoding", b"").decode("latin-1")
        try:
            loop = asyncio.get_running_loop()
            work = partial(self._handle, route, request, accepted)
            response = await loop.run_in_executor(self.site.page_threads, work)
        finally:
            self._waiting -= 1
        response.headers.setdefault("cache-control", "no-store")
        return response

    def _handle(self, route: PageRoute, request: PageRequest, accepted: str) -> Response:
        try:
            response = route.handler(request)
        except TileManagerError as error:
            response = self._fail(
                request, get_status(error), "Request failed", describe_error(error)
            )
        except Exception as error:  # noqa: BLE001  # answered with an error page, and logged
            log_crash(error)
            text = "See the log for details."
            response = self._fail(request, 500, "Internal error", text)
        return compress(response, accepted)

    def _fail(self, request: PageRequest, status: int, title: str, text: str) -> Response:
        view = {"title": title, "text": text, "status": status}
        return request.render("error.html", view, status_code=status)

    def _build_request(self, scope: Scope) -> PageRequest:
        headers: Mapping[bytes, bytes] = scope[guard.HEADERS]
        session: Session = scope[guard.SESSION]
        query = scope["query_string"]
        if len(query) > _QUERY_BYTES_MAX:
            raise guard.RefusedRequest(414, "the query is too long")
        theme = guard.read_cookie(headers.get(b"cookie", b""), "theme")
        return PageRequest(
            site=self.site,
            session=session,
            path=scope["path"],
            base_url=f"{scope['scheme']}://{headers[b'host'].decode('latin-1')}",
            query=dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)),
            form=scope.get(guard.FORM, {}),
            theme=theme if theme in _THEMES else "",
        )

    # live updates, files, logins

    async def _serve_feed(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        feed = self.site.find_feed(name)
        if feed is None:
            await PlainTextResponse("unknown feed\n", 404)(scope, receive, send)
        elif self.feeds.is_full:
            busy = PlainTextResponse("too many watchers\n", 503, {"retry-after": "10"})
            await busy(scope, receive, send)
        else:
            await self.feeds.serve(feed, self._build_request(scope), receive, send)

    def _answer_file(self, scope: Scope) -> Response:
        found = self.site.assets.find(scope["path"])
        headers: Mapping[bytes, bytes] = scope[guard.HEADERS]
        if found is None:
            return PlainTextResponse("not found\n", 404)
        asset, caching = found
        shown = {"etag": asset.etag, "cache-control": caching, "vary": "Accept-Encoding"}
        if headers.get(b"if-none-match", b"").decode("latin-1") == asset.etag:
            return Response(status_code=304, headers=shown)
        body = asset.content
        if asset.compressed is not None and b"gzip" in headers.get(b"accept-encoding", b""):
            body = asset.compressed
            shown["content-encoding"] = "gzip"
        return Response(body, headers={**shown, "content-type": asset.content_type})

    def _answer_login(self, scope: Scope) -> Response:
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        form: Mapping[str, str] = scope.get(guard.FORM, {})
        target = _check_target(form.get("next") or query.get("next") or "/")
        if scope["method"] != "POST":
            return self._show_login(target, "")
        role = self.site.settings.tokens.find_role(form.get("token", ""))
        actor = printable(form.get("actor", "").strip(), limit=_NAME_CHARS_MAX)
        if role is None or not actor:
            problem = "Enter your name." if role is not None else "This token is not valid."
            return self._show_login(target, problem, status=403)
        session = self.guard.make_session(actor, role)
        return self._with_cookie(RedirectResponse(target, 303), session)

    def _show_login(self, target: str, problem: str, *, status: int = 200) -> Response:
        page = self.site.templates.get_template("login.html")
        text = page.render(target=target, problem=problem)
        return HTMLResponse(text, status, {"cache-control": "no-store"})

    def _with_cookie(self, response: Response, session: Session | None) -> Response:
        response.raw_headers.append((b"set-cookie", self.guard.make_cookie(session)))
        return response


def _check_target(path: str) -> str:
    """Return a path of this site to go to after a login; never another site."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own and path.isascii() else "/"
