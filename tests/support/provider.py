"""The reference provider for tests: in a thread on loopback, or as a process of its own."""

import os
import signal
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from attrs import define, field, frozen

from support import contracts
from tileferry.entrypoints.http_server import ListenAddress
from tileferry.entrypoints.provider.app import ProviderSettings
from tileferry.entrypoints.provider.faults.rules import parse_script
from tileferry.entrypoints.provider.request_record import RequestLine, UploadLine
from tileferry.entrypoints.provider.server import ProviderServer

API_KEY = "canary-api-key"
PRODUCED_AT = datetime(2026, 10, 1, tzinfo=UTC)
_PATIENCE_S = 20.0
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, which is enough for plain http, and is made once."""


@frozen
class RunningProvider:
    """A provider in this process; its memory can be looked into."""

    server: ProviderServer

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def requests(self) -> list[RequestLine]:
        """Every request so far."""
        return list(self.server.provider.record.requests)

    @property
    def uploads(self) -> list[UploadLine]:
        """Every uploaded tile so far, with what became of it."""
        return list(self.server.provider.record.uploads)

    @property
    def fetched(self) -> Counter[str]:
        """How often each tile was asked for, as ``z/x/y``."""
        return Counter(line.tile for line in self.requests if line.tile is not None)

    def set_faults(self, *rules: dict[str, Any]) -> None:
        """From now on go by these rules, in the form of a faults file; without any, behave."""
        self.server.provider.plan.set_rules(parse_script(list(rules)))

    def reset(self) -> None:
        """Behave again, and forget all requests and uploads."""
        self.server.provider.reset()
        self.set_faults()

    def client(self, api_key: str | None = API_KEY, **options: Any) -> httpx.Client:
        """Return a client with the key; close it, or use it in a ``with``."""
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        options.setdefault("verify", _NO_TLS)
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=_PATIENCE_S, trust_env=False, **options
        )


@contextmanager
def serve_provider(
    *rules: dict[str, Any],
    api_key: str = API_KEY,
    produced_at: datetime | None = None,
    tls: tuple[Path, Path] | None = None,
    **settings: Any,
) -> Iterator[RunningProvider]:
    """Run a provider in a thread for a while, with these fault rules."""
    cert, key = tls or (None, None)
    ready = threading.Event()
    server = ProviderServer(
        ProviderSettings(
            api_key=api_key,
            produced_at=produced_at or PRODUCED_AT,
            rules=tuple(parse_script(list(rules))),
            **settings,
        ),
        ListenAddress(tls_cert=cert, tls_key=key),
        lambda _url: ready.set(),
    )
    thread = threading.Thread(target=server.run, name="provider", daemon=True)
    thread.start()
    assert ready.wait(_PATIENCE_S), "the provider did not start"
    try:
        yield RunningProvider(server)
    finally:
        server.stop()
        thread.join(_PATIENCE_S)
        assert not thread.is_alive(), "the provider did not stop"


@define
class ProviderProcess:
    """A provider that was started by its command; ``out`` is what it has printed."""

    process: "subprocess.Popen[str]"
    url: str
    out: str
    err: str = field(default="", init=False)

    def read_lines(self, kind: str) -> list[dict[str, Any]]:
        """Return what it remembers: ``record`` for requests, ``uploads`` for uploaded tiles."""
        context = ssl.create_default_context()
        with httpx.Client(trust_env=False, verify=context) as client:
            body = client.get(f"{self.url}/_provider/{kind}").raise_for_status().json()
        (lines,) = body.values()
        return list(lines)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop it, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        with suppress(ValueError):  # it may have been stopped and read before
            out, self.err = self.process.communicate(timeout=_PATIENCE_S)
            self.out += out
        return self.process.wait(_PATIENCE_S)


@contextmanager
def start_provider_process(
    *arguments: str | Path, environment: dict[str, str] | None = None
) -> Iterator[ProviderProcess]:
    """Run ``tileferry provider serve`` on a free port for a while."""
    command: Sequence[str | Path] = (
        *(sys.executable, "-m", "tileferry.entrypoints.cli", "provider", "serve", "--port", "0"),
        *("--json", *arguments),
    )
    process = subprocess.Popen(  # noqa: S603  # our own command
        command,
        env={**os.environ, "TILEFERRY_PROVIDER_API_KEY": API_KEY, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate()[1])
    provider = ProviderProcess(process, contracts.parse_output(line)["url"], line)
    try:
        yield provider
    finally:
        provider.stop(signal.SIGKILL)
