"""Shared by all pages: the installation, the templates, and the declaration of a page."""

import gzip
import logging
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import jinja2
from attrs import define, evolve, field, frozen
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from tileferry.domain.errors import MisuseError
from tileferry.domain.runs import RunId
from tileferry.domain.text import printable
from tileferry.domain.web_safety import AccessTokens, AllowedHosts, Role, Session, SessionSigner
from tileferry.entrypoints.config import Config
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.web.assets import Assets
from tileferry.entrypoints.web.templating import load_templates

if TYPE_CHECKING:
    from tileferry.entrypoints.metrics import Metrics

_LOGGER = logging.getLogger("tileferry.web")
PAGE_THREADS = 8
"""Pages and tiles use separate threads, so that a slow page does not delay the map."""
_GZIP_BYTES_MIN = 1_000
_FLASHES_MAX = 1_000
_SEE_OTHER = 303
State = TypeVar("State")


@frozen(kw_only=True)
class SiteSettings:
    """The settings of the site, from the configuration and the options."""

    config: Config
    config_file: Path | None = None
    """The file of ``--config``."""
    hosts: AllowedHosts
    tokens: AccessTokens
    signer: SessionSigner = field(repr=False)
    operator: str
    """The actor of a session without a login."""
    read_only: bool = False
    has_tls: bool = False
    port: int = 0

    @property
    def cookie_name(self) -> str:
        """Contains the port, because browsers share the cookies of a host between its ports."""
        return f"__Host-tileferry-{self.port}" if self.has_tls else f"tileferry-{self.port}"


@frozen(kw_only=True)
class PageRequest:
    """One request for a page, with everything that a handler needs."""

    site: "Site" = field(repr=False)
    session: Session
    path: str = "/"
    base_url: str = ""
    """Scheme, host and port, as the client wrote them."""
    params: Mapping[str, str] = field(factory=dict)
    """The variable parts of the path."""
    query: Mapping[str, str] = field(factory=dict)
    form: Mapping[str, str] = field(factory=dict)
    """The fields of a change, without the token of the form."""
    theme: str = ""

    @property
    def installation(self) -> Installation:
        return self.site.installation

    @property
    def can_change(self) -> bool:
        """Whether to show forms that change something; the guard refuses them anyway."""
        return self.session.role is Role.OPERATOR and not self.site.settings.read_only

    def render_text(self, template: str, view: Mapping[str, object]) -> str:
        """Return a rendered template, such as a fragment that is updated live."""
        shared = {"request": self, "csrf_token": self._make_csrf_token()}
        return self.site.templates.get_template(template).render({**shared, **view})

    def render(
        self, template: str, view: Mapping[str, object], *, status_code: int = 200
    ) -> Response:
        """Return a page; ``view`` has at least its ``title``."""
        flash = self.site.pop_flash(self.session)
        return HTMLResponse(self.render_text(template, {"flash": flash, **view}), status_code)

    def answer_json(self, body: object, *, status: int = 200) -> Response:
        return JSONResponse(body, status)

    def redirect(self, path: str, *, flash: str | None = None) -> Response:
        """Return to a page after a change; ``flash`` is shown there once."""
        if flash is not None:
            self.site.add_flash(self.session, flash)
        return RedirectResponse(path, _SEE_OTHER)

    def with_params(self, **params: str) -> "PageRequest":
        return evolve(self, params={**self.params, **params})

    def _make_csrf_token(self) -> str:
        return self.site.settings.signer.make_csrf_token(self.session)


Handler: TypeAlias = Callable[[PageRequest], Response]
"""Runs in a thread, so it may wait for the database."""


@frozen
class PageRoute:
    """A path, such as ``/flights/{flight_id}``, and its handler."""

    path: str
    handler: Handler
    method: str = "GET"


@frozen(kw_only=True)
class Feed:
    """A fragment of a page that is sent again whenever it changes, while the page is open."""

    name: str
    render: Callable[[PageRequest], str]
    every_s: float = 2.0


@frozen(kw_only=True)
class Page:
    """A page of the console, or endpoints without an entry in the navigation."""

    title: str | None
    """In the navigation; ``None`` for none."""
    path: str
    routes: Sequence[PageRoute]
    feeds: Sequence[Feed] = ()


@define(kw_only=True)
class Site:
    """The pages, their templates, and the state that they share while the server runs."""

    installation: Installation
    settings: SiteSettings
    pages: Sequence[Page]
    assets: Assets = field(factory=Assets)
    templates: jinja2.Environment = field(init=False)
    page_threads: ThreadPoolExecutor = field(init=False)
    _flashes: dict[str, str] = field(factory=dict, init=False)
    _states: dict[type, object] = field(factory=dict, init=False)
    _metrics: "Metrics | None" = field(default=None, init=False)
    _guard: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.page_threads = ThreadPoolExecutor(PAGE_THREADS, thread_name_prefix="page")
        self.templates = load_templates()
        self.templates.globals |= {"site": self, "asset": self.assets.get_url}

    @property
    def navigation(self) -> Sequence[Page]:
        return [page for page in self.pages if page.title is not None]

    def find_feed(self, name: str) -> Feed | None:
        return next((one for page in self.pages for one in page.feeds if one.name == name), None)

    def get_state(self, kind: type[State], build: Callable[[], State]) -> State:
        """Return the state that a page keeps between requests, by its class; build it first."""
        with self._guard:
            state = self._states.setdefault(kind, None) or build()
            self._states[kind] = state
        return cast("State", state)

    def add_flash(self, session: Session, text: str) -> None:
        """Keep a message until the session's next page."""
        while len(self._flashes) >= _FLASHES_MAX:
            self._flashes.pop(next(iter(self._flashes)))
        self._flashes[session.nonce] = text

    def pop_flash(self, session: Session) -> str | None:
        return self._flashes.pop(session.nonce, None)

    def get_metrics(self) -> "Metrics":
        """Return the metrics of this process; raise if their extra is not installed."""
        with self._guard:
            if self._metrics is None:
                self._metrics = self.installation.build_metrics()
            return self._metrics

    def start_run(self, run_id: RunId) -> None:
        """Process a queued download in this process."""
        try:
            metrics = self.get_metrics()
        except MisuseError:  # the extra is not installed
            metrics = None
        self.installation.background_worker.start(run_id, metrics=metrics)

    def close(self) -> None:
        self.page_threads.shutdown(wait=False, cancel_futures=True)


def log_crash(error: BaseException) -> None:
    """Log an unexpected error; control characters in it are escaped."""
    for line in traceback.format_exception(error):
        _LOGGER.error("%s", printable(line, limit=2_000), extra={"kind": "web.crash"})


def compress(response: Response, accepted: str) -> Response:
    """Compress the body of a page if the client accepts it."""
    body = bytes(response.body)
    if "gzip" not in accepted or len(body) < _GZIP_BYTES_MIN:
        return response
    response.body = gzip.compress(body, 5, mtime=0)
    response.headers["content-length"] = str(len(response.body))
    response.headers["content-encoding"] = "gzip"
    response.headers["vary"] = "Accept-Encoding"
    return response
