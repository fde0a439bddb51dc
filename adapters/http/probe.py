"""A small question to a provider, for what its answer shows beside its content."""

import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx
from attrs import frozen

from tileferry.adapters.http.deadlines import within
from tileferry.adapters.http.errors import answered
from tileferry.adapters.http.refusals import key_of

DEADLINE_S = 20.0
"""A provider that cannot say hello within this is no provider to download from."""


@frozen(kw_only=True)
class ProviderSigns:
    """What an answer showed."""

    status: int
    server: str
    date: datetime | None
    """The provider's clock, by its own word."""
    certificate_expires_at: datetime | None
    """``None`` without TLS."""


def probed(client: httpx.Client, path: str, *, deadline_s: float = DEADLINE_S) -> ProviderSigns:
    """Ask, and look; only the head of the answer is read, and it has to come in time."""
    server = f"{client.base_url.scheme}://{client.base_url.netloc.decode()}"

    def ask() -> ProviderSigns:
        with client.stream("GET", path) as response:
            return ProviderSigns(
                status=response.status_code,
                server=server,
                date=_date_of(response.headers.get("date", "")),
                certificate_expires_at=_expiry_of(response),
            )

    return answered(lambda: within(deadline_s, ask), lambda: server, secret=key_of(client))


def _date_of(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):  # whatever it is, it is no time
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _expiry_of(response: httpx.Response) -> datetime | None:
    connection = response.extensions["network_stream"].get_extra_info("ssl_object")
    if connection is None:
        return None
    return datetime.fromtimestamp(
        ssl.cert_time_to_seconds(connection.getpeercert()["notAfter"]), UTC
    )
