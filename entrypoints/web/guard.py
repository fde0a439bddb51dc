"""Checks the host, session and changes of every request, and adds headers to every response.

The rules are in ``tileferry.domain.web_safety``; this module reads the request and applies them.
"""

import asyncio
import base64
import binascii
import json
import secrets
import time
from collections.abc import Mapping, MutableMapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote

from attrs import define, field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tileferry.domain.retry import RetryBudget
from tileferry.domain.web_safety import (
    SAFE_METHODS,
    RateLimiter,
    Refusal,
    Role,
    Session,
    check_change,
    is_same_origin,
)
from tileferry.entrypoints.web.site import SiteSettings, log_crash

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

SESSION = "tileferry.session"
FORM = "tileferry.form"
HEADERS = "tileferry.headers"
"""Keys in the scope of a request, for the results of the guard."""
CSRF_FIELD = "csrf_token"
LOGIN_PATH = "/login"
OPEN_PATHS = ("/static/", LOGIN_PATH, "/healthz", "/readyz")
"""Answered without a session; they reveal nothing about the installation."""
MACHINE_PATHS = ("/tiles", "/wmts", "/metrics", "/live/")
"""Read by programs: without a session they get an error, not the login page."""
BODY_BYTES_MAX = 1024 * 1024
FIELDS_MAX = 5_000
BODY_TIMEOUT_S = 10.0
_CHANGES = RetryBudget(capacity=60, refill_per_s=2, earned_per_success=0)
_LOGINS = RetryBudget(capacity=5, refill_per_s=0.1, earned_per_success=0)
_FORM_TYPE = b"application/x-www-form-urlencoded"
_STATUS = {
    Refusal.HOST: 421,
    Refusal.METHOD: 405,
    Refusal.ORIGIN: 403,
    Refusal.READ_ONLY: 403,
    Refusal.ROLE: 403,
    Refusal.SESSION: 401,
    Refusal.CSRF: 403,
    Refusal.RATE: 429,
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ALWAYS: Headers = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer: with it, browsers send "Origin: null" with our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_HOSTS_MAX = 64
_TLS: Headers = ((b"strict-transport-security", b"max-age=31536000"),)
_SAME_ORIGIN: Headers = ((b"cross-origin-resource-policy", b"same-origin"),)


class RefusedRequest(Exception):  # noqa: N818  # an answer, not an error
    """A request that the guard refuses or redirects."""

    def __init__(self, status: int, reason: str, headers: Headers = ()) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


@define
class Guard:
    """The outermost layer of the application."""

    app: ASGIApp
    settings: SiteSettings
    _changes: RateLimiter = field(factory=lambda: RateLimiter(_CHANGES), init=False)
    _logins: RateLimiter = field(factory=lambda: RateLimiter(_LOGINS), init=False)

    _hosts: set[bytes] = field(factory=set, init=False)
    _program: Session = field(init=False)
    """The session of all requests for tiles, if no token is required; it has no cookie."""

    def __attrs_post_init__(self) -> None:
        self._program = self.make_session(self.settings.operator, Role.OPERATOR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(reversed(scope["headers"]))
        added: list[tuple[bytes, bytes]] = [*_ALWAYS, *(_TLS if self.settings.has_tls else ())]

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                extra = added if b"cross-origin-resource-policy" in own else [*added, *_SAME_ORIGIN]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        try:
            cookie = self._admit(scope, headers)
            if cookie is not None:
                added.append((b"set-cookie", cookie))
            if scope["method"] not in SAFE_METHODS:
                receive = await self._admit_change(scope, headers, receive)
            await self.app(scope, receive, send_safely)
        except RefusedRequest as refusal:
            await self._refuse(refusal, headers, send_safely)
        except Exception as error:  # the last handler: logged, but not shown
            log_crash(error)
            raise

    def _admit(
        self, scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes]
    ) -> bytes | None:
        """Check a request and find its session; return the cookie of a new session."""
        self._check_host(headers.get(b"host"))
        if scope["method"] not in SAFE_METHODS | {"POST"}:
            raise _build_refusal(Refusal.METHOD)
        scope[HEADERS] = headers
        session = self._find_session(headers, scope["method"])
        path: str = scope["path"]
        cookie = None
        if session is None and not self.settings.tokens.are_required:
            session = self._program
            if not path.startswith((*MACHINE_PATHS, "/static/")):
                session = self.make_session(self.settings.operator, Role.OPERATOR)
                cookie = self.make_cookie(session)
        if session is None and not path.startswith(OPEN_PATHS):
            if scope["method"] == "GET" and not path.startswith(MACHINE_PATHS):
                target = f"{LOGIN_PATH}?next={quote(path)}".encode()
                raise RefusedRequest(303, Refusal.SESSION, [(b"location", target)])
            raise _build_refusal(Refusal.SESSION)
        scope[SESSION] = session
        return cookie

    def _check_host(self, host: bytes | None) -> None:
        """Refuse a request for another host; the few names that are permitted are remembered."""
        if host in self._hosts:
            return
        if not self.settings.hosts.permits(None if host is None else host.decode("latin-1")):
            raise _build_refusal(Refusal.HOST)
        if host is not None and len(self._hosts) < _HOSTS_MAX:
            self._hosts.add(host)

    def _find_session(self, headers: Mapping[bytes, bytes], method: str) -> Session | None:
        now_s = time.time()
        cookie = read_cookie(headers.get(b"cookie", b""), self.settings.cookie_name)
        session = None if cookie is None else self.settings.signer.open(cookie, now_s=now_s)
        if session is not None or method not in SAFE_METHODS:
            return session
        # Programs send the token itself. Browsers may send Basic unasked, so it can only read.
        presented = _read_authorization(headers.get(b"authorization", b""))
        role = None if presented is None else self.settings.tokens.find_role(presented)
        return None if role is None else self.make_session("token", role)

    def make_session(self, actor: str, role: Role) -> Session:
        """Return a session that begins now."""
        lasts_s = self.settings.config.serve.session_hours * 3_600
        return Session(
            actor=actor,
            role=role,
            expires_at_s=int(time.time() + lasts_s) + 1,
            nonce=secrets.token_urlsafe(16),
        )

    def make_cookie(self, session: Session | None) -> bytes:
        """Return a ``Set-Cookie`` for a session; ``None`` ends it."""
        value = "" if session is None else self.settings.signer.seal(session)
        age_s = 0 if session is None else int(session.expires_at_s - time.time())
        secure = "; Secure" if self.settings.has_tls else ""
        return (
            f"{self.settings.cookie_name}={value}; Path=/; Max-Age={max(0, age_s)}; HttpOnly; "
            f"SameSite=Strict{secure}"
        ).encode()

    async def _admit_change(
        self, scope: MutableMapping[str, Any], headers: Mapping[bytes, bytes], receive: Receive
    ) -> Receive:
        """Check a change, and read its form."""
        is_login = scope["path"] == LOGIN_PATH
        limiter = self._logins if is_login else self._changes
        client = (scope.get("client") or ("",))[0]
        if scope["method"] == "POST" and not limiter.admit(client, now_s=time.monotonic()):
            raise _build_refusal(Refusal.RATE, [(b"retry-after", b"10")])
        own_origin = f"{scope['scheme']}://{headers[b'host'].decode('latin-1')}"
        same = is_same_origin(
            origin=_decode(headers.get(b"origin")),
            fetch_site=_decode(headers.get(b"sec-fetch-site")),
            own_origin=own_origin,
        )
        if not same:
            raise _build_refusal(Refusal.ORIGIN)
        body = await _read_body(headers, receive)
        form = dict(_parse_form(headers, body))
        session: Session | None = scope[SESSION]
        token = form.pop(CSRF_FIELD, "")
        if not is_login:
            signer = self.settings.signer
            refusal = check_change(
                is_same_origin=same,
                session=session,
                has_csrf_token=session is not None and signer.check_csrf_token(session, token),
                read_only=self.settings.read_only,
            )
            if refusal is not None:
                raise _build_refusal(refusal)
        scope[FORM] = form

        async def receive_nothing() -> Message:
            return {"type": "http.disconnect"}

        return receive_nothing

    async def _refuse(
        self, refusal: RefusedRequest, headers: Mapping[bytes, bytes], send: Send
    ) -> None:
        wants_json = b"json" in headers.get(b"accept", b"")
        text = f"Refused: {refusal.reason}."
        body = json.dumps({"error": refusal.reason}) if wants_json else f"{text}\n"
        kind = b"application/json" if wants_json else b"text/plain; charset=utf-8"
        await send(
            {
                "type": "http.response.start",
                "status": refusal.status,
                "headers": [
                    (b"content-type", kind),
                    (b"content-length", str(len(body.encode())).encode()),
                    (b"cache-control", b"no-store"),
                    *refusal.headers,
                ],
            }
        )
        await send({"type": "http.response.body", "body": body.encode()})


def _build_refusal(reason: Refusal, headers: Headers = ()) -> RefusedRequest:
    if reason is Refusal.METHOD:
        headers = [(b"allow", b"GET, HEAD, POST, OPTIONS")]
    if reason is Refusal.SESSION:
        headers = [(b"www-authenticate", b'Bearer realm="tileferry"')]
    return RefusedRequest(_STATUS[reason], reason.value, headers)


def _decode(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def read_cookie(header: bytes, name: str) -> str | None:
    if not header:
        return None
    try:
        morsel = SimpleCookie(header.decode("latin-1")).get(name)
    except CookieError:
        return None
    return None if morsel is None else morsel.value


def _read_authorization(header: bytes) -> str | None:
    """Return the token of a Bearer header, or the password of a Basic one."""
    scheme, _, value = header.decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None


async def _read_body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    """Return the body of a change; refuse a large or slow one."""
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit() or int(declared) > BODY_BYTES_MAX:
        raise RefusedRequest(413, f"the form exceeds {BODY_BYTES_MAX:,} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise RefusedRequest(400, "the request was cut off")
                body += message.get("body", b"")
                if len(body) > BODY_BYTES_MAX:
                    raise RefusedRequest(413, f"the form exceeds {BODY_BYTES_MAX:,} bytes")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise RefusedRequest(408, "the request was too slow") from None


def _parse_form(headers: Mapping[bytes, bytes], body: bytes) -> list[tuple[str, str]]:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != _FORM_TYPE:
        raise RefusedRequest(415, "only HTML forms are accepted")
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError:  # includes UnicodeDecodeError
        raise RefusedRequest(400, "the form cannot be read") from None
