"""Alerts delivered to a webhook."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from attrs import define, field

from tileferry.adapters.http.webhook import AlertWebhook, check_webhook_url
from tileferry.domain.audit import AlertChanged, AlertState
from tileferry.domain.errors import AlertDeliveryError, InvalidValueError

SETTING = "audit.alert_webhook_url"
CANARY = "canary-77aa"
ALERT = AlertChanged(
    timestamp=datetime(2026, 11, 18, 4, tzinfo=UTC),
    retry_category="RETRY_API_REQUEST",
    state=AlertState.RAISED,
    retries=45,
    window_seconds=60.0,
    threshold_per_minute=10.0,
    correlation_id="secret-flight",
)


@define
class Hook:
    """A webhook that answers with a status, after a while."""

    status: int = 204
    wait_s: float = 0.0
    bodies: list[dict[str, Any]] = field(factory=list)
    headers: list[dict[str, str]] = field(factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/{CANARY}"


@pytest.fixture
def hook() -> Iterator[Hook]:
    state = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            state.bodies.append(json.loads(content))
            state.headers.append(dict(self.headers))
            time.sleep(state.wait_s)
            self.send_response(state.status)
            self.send_header("Location", f"http://127.0.0.1:{state.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def create_webhook(hook: Hook, **options: Any) -> AlertWebhook:
    return AlertWebhook(url=check_webhook_url(hook.url, setting=SETTING), **options)


def test_alert_is_posted_without_secrets(hook: Hook) -> None:
    create_webhook(hook).send(ALERT)
    assert hook.bodies == [
        {
            "schema": "tileferry.alert.v1",
            "state": "raised",
            "category": "RETRY_API_REQUEST",
            "retries": 45,
            "window_s": 60.0,
            "threshold_per_minute": 10.0,
            "at": "2026-11-18T04:00:00+00:00",
        }
    ]
    assert "Authorization" not in hook.headers[0]


@pytest.mark.parametrize(
    ("status", "is_retryable"), [(503, True), (429, True), (302, False), (404, False), (307, False)]
)
def test_refusal_is_an_error_and_redirects_are_not_followed(
    hook: Hook, status: int, *, is_retryable: bool
) -> None:
    hook.status = status
    webhook = create_webhook(hook)
    with pytest.raises(AlertDeliveryError, match=f"status {status}") as error:
        webhook.send(ALERT)
    assert error.value.is_retryable == is_retryable
    assert len(hook.bodies) == 1
    assert CANARY not in f"{error.value} {error.value!r} {webhook!r}"


def test_slow_or_missing_server_ends_within_the_time_limit(hook: Hook) -> None:
    hook.wait_s = 2.0
    started_s = time.monotonic()
    with pytest.raises(AlertDeliveryError) as error:
        create_webhook(hook, timeout_s=0.2).send(ALERT)
    assert time.monotonic() - started_s < 1.5
    assert error.value.is_retryable
    gone = AlertWebhook(url=httpx.URL(f"http://127.0.0.1:1/{CANARY}"))
    with pytest.raises(AlertDeliveryError, match="ConnectError") as refused:
        gone.send(ALERT)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        f"http://hooks.example/{CANARY}",
        f"ftp://hooks.example/{CANARY}",
        f"https://user:{CANARY}@hooks.example/",
        f"https:///{CANARY}",
        f"{CANARY}",
        f"https://exa mple/{CANARY}",
        "https://hooks.example:99999999/",
    ],
)
def test_unsafe_address_is_rejected_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidValueError, match=r"audit\.alert_webhook_url") as error:
        check_webhook_url(url, setting=SETTING)
    assert CANARY not in str(error.value)


def test_safe_addresses_are_accepted() -> None:
    for url in ("https://hooks.example/a?token=b", "http://localhost:9/x", "http://[::1]:9/"):
        assert str(check_webhook_url(url, setting=SETTING)) == url
