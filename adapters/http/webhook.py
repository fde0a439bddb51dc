"""Delivers alerts to a webhook: one POST of JSON, within a time limit, without redirects."""

import ssl
from typing import Any

import httpx
from attrs import field, frozen

from tileferry.adapters.http.client import build_user_agent
from tileferry.adapters.http.deadlines import call_within
from tileferry.domain.addresses import PORT_MAX, is_host, is_loopback
from tileferry.domain.audit import AlertChanged
from tileferry.domain.errors import AlertDeliveryError, InvalidValueError

TIMEOUT_S = 3.0
SCHEMA = "tileferry.alert.v1"
_SUCCESS = range(200, 300)
_RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})


def check_webhook_url(url: str, *, setting: str) -> httpx.URL:
    """Return the parsed address; raise unless it is https, or http on this machine.

    Errors show no part of the address but its host: its path or query may be a secret.
    """
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError):
        parsed, host = httpx.URL(""), ""
    is_valid = parsed.scheme in {"http", "https"} and is_host(host)
    if not is_valid or parsed.userinfo or (parsed.port or 0) > PORT_MAX:
        raise InvalidValueError(
            field=setting,
            value="***",
            problem="is not a valid address",
            remedy="use https://host/path, without a user name",
        )
    if parsed.scheme == "http" and not is_loopback(parsed.host):
        raise InvalidValueError(
            field=setting,
            value=parsed.host,
            problem="would send alerts over plain http",
            remedy="use https; plain http is allowed for this machine only",
        )
    return parsed


def change_to_json(change: AlertChanged) -> dict[str, Any]:
    """Return the body of a delivery. It has no secrets, paths or messages of errors."""
    return {
        "schema": SCHEMA,
        "state": change.state.value,
        "category": change.retry_category,
        "retries": change.retries,
        "window_s": change.window_seconds,
        "threshold_per_minute": change.threshold_per_minute,
        "at": change.timestamp.isoformat(),
    }


@frozen(kw_only=True)
class AlertWebhook:
    """A webhook. Proxies and credentials of the environment are ignored."""

    url: httpx.URL = field(repr=False)
    timeout_s: float = TIMEOUT_S

    def send(self, change: AlertChanged) -> None:
        """Post a change; raise unless the server accepts it within the time limit."""
        try:
            status = call_within(self.timeout_s, lambda: self._post(change))
        except httpx.HTTPError as error:
            raise self._build_error(type(error).__name__) from None  # its text has the address
        if status not in _SUCCESS:
            raise self._build_error(f"status {status}", is_retryable=status in _RETRYABLE)

    def _post(self, change: AlertChanged) -> int:
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with (
            httpx.Client(
                verify=context, timeout=self.timeout_s, follow_redirects=False, trust_env=False
            ) as client,
            client.stream(  # the body of the answer is not read
                "POST",
                self.url,
                json=change_to_json(change),
                headers={"User-Agent": build_user_agent()},
            ) as answer,
        ):
            return answer.status_code

    def _build_error(self, problem: str, *, is_retryable: bool = True) -> AlertDeliveryError:
        return AlertDeliveryError(
            receiver=self.url.host, problem=problem, is_retryable=is_retryable
        )
