"""The connection: errors that say what to do, time limits, secrets, and an end without leaks."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from support.nats_server import NatsServer, create_retry_manager, open_connection, run_nats_server
from support.proxies import Loss, NatsProxy

from tileferry.adapters.memory import MemoryAuditSink
from tileferry.adapters.nats import NatsAddress, NatsConnection
from tileferry.adapters.nats.session import NatsSession
from tileferry.domain.audit import NotRetryable, RetryAttempted
from tileferry.domain.errors import InvalidValueError, MessagingError, RetryError
from tileferry.domain.retry import RetryCategory

CANARY = "hunter2"
Connect = Callable[..., NatsConnection]


async def count_streams(session: NatsSession) -> int:
    return (await session.js.account_info()).streams


def ask_jetstream(connection: NatsConnection) -> int:
    """Make the smallest call that JetStream must answer."""
    return connection.call(RetryCategory.KV_GET, "ask", lambda: connection.ask(count_streams))


def get_error(connection: NatsConnection) -> MessagingError:
    """Return the error of a connection that cannot work, whether it was retried or not."""
    with connection, pytest.raises((MessagingError, RetryError)) as raised:
        ask_jetstream(connection)
    error = raised.value
    assert CANARY not in f"{error!r} {error} {connection!r}"
    if isinstance(error, RetryError):
        error = error.__cause__  # type: ignore[assignment]  # asserted below
    assert isinstance(error, MessagingError)
    return error


# Errors


def test_unreachable_server_error_names_the_server_and_the_reason(retries: MemoryAuditSink) -> None:
    connection = open_connection(f"nats://user:{CANARY}@127.0.0.1:1", retries)
    error = get_error(connection)
    assert "nats://127.0.0.1:1: cannot connect" in error.problem
    assert "refused" in error.problem.lower() or "Connect call failed" in error.problem
    assert error.remedy == "start the server, or correct nats_url"
    assert [event.event_type for event in retries.events] == ["retry_attempt"] * 4 + [
        "retry_exhausted"
    ]


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ('user: u, password: "p@:/, w"', "u:p%40%3A%2F%2C%20w@", f"u:{CANARY}@"),
        ('token: "t@k"', "t%40k@", f"{CANARY}@"),
        ("user: u, password: p", "u:p@", ""),
    ],
)
def test_credentials_come_from_the_url_and_wrong_ones_are_not_retried(
    tmp_path: Path, retries: MemoryAuditSink, rule: str, good: str, bad: str
) -> None:
    with run_nats_server(tmp_path / "server", f"authorization {{ {rule} }}\n") as server:
        with open_connection(server.url.replace("//", f"//{good}")) as connection:
            assert ask_jetstream(connection) == 0
        error = get_error(open_connection(server.url.replace("//", f"//{bad}"), retries))
    assert "login rejected: Authorization Violation" in error.problem
    assert "check the credentials" in error.remedy
    assert [type(event) for event in retries.events] == [NotRetryable]  # and no other attempt


def test_missing_permissions_are_reported_instead_of_a_timeout(
    tmp_path: Path, retries: MemoryAuditSink
) -> None:
    rights = 'authorization { users: [{user: u, password: p, permissions: {publish: "x"}}] }\n'
    with run_nats_server(tmp_path / "server", rights) as server:
        url = server.url.replace("//", "//u:p@")
        error = get_error(open_connection(url, retries, timeout_s=0.3))
    assert "permissions violation" in error.problem
    assert len(retries.events) == 1


def test_server_without_jetstream_is_reported(tmp_path: Path) -> None:
    with run_nats_server(tmp_path / "server", with_jetstream=False) as server:
        error = get_error(open_connection(server.url))
    assert "JetStream does not respond: not ready, or not enabled" in error.problem
    assert "nats-server with -js" in error.remedy


def test_account_without_jetstream_is_not_retried(tmp_path: Path, retries: MemoryAuditSink) -> None:
    accounts = (
        "accounts: { A: {users: [{user: a, password: a}]},"
        " B: {jetstream: enabled, users: [{user: b, password: b}]} }\n"
    )
    with run_nats_server(tmp_path / "server", accounts) as server:
        error = get_error(open_connection(server.url.replace("//", "//a:a@"), retries))
    assert "JetStream is not enabled" in error.problem
    assert [type(event) for event in retries.events] == [NotRetryable]


def test_silent_server_times_out_within_the_limit(
    own_server: NatsServer, connect_to: Connect, retries: MemoryAuditSink
) -> None:
    connection = connect_to(own_server)
    ask_jetstream(connection)
    own_server.pause()
    connection.timeout_s = 0.2
    started_s = time.monotonic()
    with pytest.raises(RetryError, match="timed out"):
        ask_jetstream(connection)
    assert 0.6 <= time.monotonic() - started_s < 10
    assert len(retries.events) == 3
    own_server.pause(paused=False)
    connection.timeout_s = 10
    assert ask_jetstream(connection) == 0


def test_connecting_to_a_silent_server_times_out(own_server: NatsServer) -> None:
    own_server.pause()
    started_s = time.monotonic()
    error = get_error(open_connection(own_server.url, timeout_s=0.1))
    assert "timed out" in error.problem
    assert time.monotonic() - started_s < 10


def test_lost_connection_fails_before_the_timeout(
    proxy: NatsProxy, connect_to: Connect, retries: MemoryAuditSink
) -> None:
    connection = connect_to(proxy, timeout_s=30)
    ask_jetstream(connection)
    proxy.lose(b"$JS.API.INFO", Loss.ANSWER)
    started_s = time.monotonic()
    ask_jetstream(connection)
    assert time.monotonic() - started_s < 15
    failed = retries.events[0]
    assert isinstance(failed, RetryAttempted)
    assert "the connection was lost" in failed.exception_message


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return folder


def test_tls_is_verified_against_the_configured_ca(tmp_path: Path, certificates: Path) -> None:
    settings = f'tls {{ cert_file: "{certificates}/cert.pem", key_file: "{certificates}/key.pem" }}'
    ca_file = certificates / "ca.pem"
    with run_nats_server(tmp_path / "server", settings) as server:
        url = server.url.replace("nats:", "tls:")
        with NatsConnection.from_url(
            url, retry=create_retry_manager(), ca_file=ca_file
        ) as connection:
            assert ask_jetstream(connection) == 0
        untrusted = get_error(NatsConnection.from_url(url, retry=create_retry_manager()))
        other_host = url.replace("127.0.0.1", "localhost")
        misnamed = get_error(
            NatsConnection.from_url(other_host, retry=create_retry_manager(), ca_file=ca_file)
        )
    assert "certificate verify failed" in untrusted.problem
    assert "Hostname mismatch" in misnamed.problem
    assert "check the server's certificate" in misnamed.remedy


def test_tls_url_sends_nothing_in_cleartext(
    nats_server: NatsServer, connect_to: Connect, proxy: NatsProxy
) -> None:
    del nats_server, connect_to
    url = proxy.url.replace("nats://", f"tls://user:{CANARY}@")
    error = get_error(open_connection(url))
    assert "tls:// requires TLS, but the server does not offer it" in error.problem
    assert proxy.sent_bytes == 0


def test_invalid_ca_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    for name in ("none.pem", "bad.pem"):
        with pytest.raises(InvalidValueError, match="ca_file: cannot be used"):
            NatsConnection.from_url(
                "tls://127.0.0.1", retry=create_retry_manager(), ca_file=tmp_path / name
            )


# Coming back


def test_connection_is_restored_after_a_server_restart(
    own_server: NatsServer, connect_to: Connect, retries: MemoryAuditSink
) -> None:
    connection = connect_to(own_server)
    ask_jetstream(connection)
    own_server.restart()
    assert ask_jetstream(connection) == 0
    own_server.kill()
    with pytest.raises(RetryError):  # by the call, or by connecting, if the end was noticed before
        ask_jetstream(connection)
    with pytest.raises(RetryError) as raised:
        ask_jetstream(connection)
    assert raised.value.category == RetryCategory.NATS_CONNECT
    own_server.start()
    assert ask_jetstream(connection) == 0
    assert len(retries.events) >= 5


def test_calls_from_many_threads_succeed(own_server: NatsServer, connect_to: Connect) -> None:
    connection = connect_to(own_server)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: ask_jetstream(connection), range(80))) == [0] * 80
    own_server.restart()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: ask_jetstream(connection), range(80))) == [0] * 80


# The end


def test_close_leaks_nothing_and_is_final(own_server: NatsServer) -> None:
    before = threading.active_count()
    connection = open_connection(own_server.url)
    connection.close()  # before it was ever used
    for _ in range(3):
        with open_connection(own_server.url) as connection:
            ask_jetstream(connection)
        connection.close()
    own_server.kill()
    with open_connection(own_server.url, timeout_s=0.5) as broken, pytest.raises(RetryError):
        ask_jetstream(broken)
    with pytest.raises(MessagingError, match="this connection was closed; open a new one"):
        ask_jetstream(connection)
    assert threading.active_count() == before
    gc.collect()  # an unclosed socket or loop would warn, and a warning is an error here


def test_close_ends_a_call_in_another_thread(own_server: NatsServer) -> None:
    connection = open_connection(own_server.url, timeout_s=60)
    ask_jetstream(connection)
    begun = threading.Event()

    async def never(session: NatsSession) -> None:
        del session
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        connection.call(RetryCategory.KV_GET, "wait", lambda: connection.ask(never))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert begun.wait(10)
        connection.close()
        with pytest.raises(MessagingError, match="this connection was closed"):
            waiting.result(10)


# Addresses


def test_credentials_are_not_shown_in_an_address() -> None:
    address = NatsAddress.parse(f"nats://u:{CANARY}@one, nats://u:{CANARY}@[::1]:5000/")
    assert str(address) == "nats://one:4222, nats://[::1]:5000"
    assert (address.user, address.password, address.token) == ("u", CANARY, None)
    assert CANARY not in repr(address)
    assert NatsAddress.parse("tls://host").wants_tls


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "localhost:4222",
        "http://localhost",
        "ws://localhost",
        f"nats://{CANARY}@",
        f"nats://u:{CANARY}@host:port",
        f"nats://u:{CANARY}/x@host",
        "nats://host:0",
        "nats://host/path",
        "nats://host?tls=true",
        "nats://a,tls://b",
        f"nats://u:{CANARY}@a,nats://u:other@b",
    ],
)
def test_invalid_address_is_rejected_and_not_shown(wrong: str) -> None:
    with pytest.raises(InvalidValueError, match=r"nats_url: .*nats://user:password@host") as raised:
        NatsAddress.parse(wrong)
    assert CANARY not in f"{raised.value} {raised.value!r}"
    assert raised.value.__cause__ is None
