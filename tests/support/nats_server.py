"""A real nats-server with JetStream, to be stopped, killed and started again at will."""

import json
import logging
import os
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

from tileferry.adapters.memory import ManualClock, MemoryAuditSink
from tileferry.adapters.nats import NatsConnection
from tileferry.application.audit import AuditTrail
from tileferry.application.retries.manager import RetryManager

LOGGER = logging.getLogger("tests.nats")
_STARTING_S = 20.0


@define(eq=False)
class NatsServer:
    """Keeps its port and its data from one start to the next."""

    folder: Path
    config: str = ""
    """Lines of nats-server's own configuration."""
    with_jetstream: bool = True
    port: int = field(default=-1, init=False)
    starts: int = field(default=0, init=False)
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "server.conf"
        jetstream = 'jetstream { store_dir: "%s" }\n' % (self.folder / "data")
        settings.write_text((jetstream if self.with_jetstream else "debug: false\n") + self.config)
        for left in self.folder.glob("*.ports"):
            left.unlink()
        self._process = subprocess.Popen(  # noqa: S603  # the server, as written here
            [
                Path(sysconfig.get_path("scripts")) / "nats-server",
                *("--config", settings, "--addr", "127.0.0.1", "--port", str(self.port)),
                *("--ports_file_dir", self.folder, "--log", self.folder / "log"),
            ]
        )
        self._wait()
        self.starts += 1

    def stop(self) -> None:
        """Stop it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, wherever it is."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self, *, paused: bool = True) -> None:
        """Have it fall silent with its connections open, or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)
        if paused:  # the signal takes its time to reach every thread
            os.waitpid(self._process.pid, os.WUNTRACED)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(_STARTING_S)
            self._process = None

    def _wait(self) -> None:
        started_s = time.monotonic()
        while time.monotonic() - started_s < _STARTING_S:
            if self.port < 0:
                self.port = self._read_announced_port()
            elif _accepts_connections(self.port):
                return
            time.sleep(0.005)
        raise AssertionError((self.folder / "log").read_text())

    def _read_announced_port(self) -> int:
        for ports in self.folder.glob("*.ports"):
            try:
                (url,) = json.loads(ports.read_text())["nats"]
            except ValueError:  # it is being written
                return -1
            return int(url.rsplit(":", 1)[1])
        return -1


def _accepts_connections(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return connection.recv(4) == b"INFO"
    except OSError:
        return False


@contextmanager
def run_nats_server(
    folder: Path, config: str = "", *, with_jetstream: bool = True
) -> Iterator[NatsServer]:
    """Run a server for a while."""
    server = NatsServer(folder, config, with_jetstream=with_jetstream)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def create_retry_manager(
    sink: MemoryAuditSink | None = None, clock: ManualClock | None = None
) -> RetryManager:
    """Return a manager that waits on paper only, and tells a sink of its retries."""
    clock = clock or ManualClock()
    return RetryManager(
        clock=clock,
        new_id=lambda: "a call",
        audit=AuditTrail(logger=LOGGER, sinks=[] if sink is None else [sink], fail_closed=True),
        sleep=clock.sleep_async,
    )


def open_connection(
    url: str, sink: MemoryAuditSink | None = None, *, timeout_s: float = 5.0
) -> NatsConnection:
    """Return a connection that waits on paper between its attempts."""
    return NatsConnection.from_url(url, retry=create_retry_manager(sink), timeout_s=timeout_s)
