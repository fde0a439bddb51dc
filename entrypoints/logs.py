"""Logging: JSON records in a file, and warnings for people on stderr.

structlog takes as long to import as a command takes to run, and most commands log nothing: it is
imported with the first record.
"""

import contextlib
import fcntl
import logging
import os
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tileferry.domain.text import format_error, printable
from tileferry.entrypoints.config import LogConfig

if TYPE_CHECKING:
    from rich.console import Console

    from tileferry.adapters.telemetry.log_audit import StructuredLogger

FILE_BYTES_MAX = 16 * 1024 * 1024
FILES_KEPT = 4
SHOWN_PER_KIND = 3
"""Messages that repeat for every tile would fill the terminal; the file has all of them."""
TEXT_CHARS_MAX = 2_000

_SHOWN_BY_COMMANDS = frozenset(
    {
        "retry.attempt",  # the progress display shows the countdown
        "retry.exhausted",
        "retry.not_retryable",
        "audit.retry_attempt",
        "audit.retry_exhausted",
        "audit.not_retryable",
        "c11.download.provider_failed",
        "c11.download.budget_exceeded",
        "c11.download.interrupted",
        "c11.download.failed",
        "c11.ingest.refused",
        "c6.import.refused",
        "c6.export.damaged",
        "cli.crashed",
        "partition.override",
    }
)
"""Kinds that the commands report themselves."""


def get_structured_logger(name: str) -> "StructuredLogger":
    """Return a structlog logger that writes through the standard ``logging`` handlers."""
    import structlog  # noqa: PLC0415  # see the module docstring

    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("StructuredLogger", logger)


def mute_default_handler() -> None:
    """Keep Python from printing warnings that no handler took.

    Never undone: a background thread may log after the handlers of a block are removed.
    """
    ours = logging.getLogger("tileferry")
    if not ours.handlers:
        ours.addHandler(logging.NullHandler())


@contextmanager
def log_to(config: LogConfig, console: "Console") -> Iterator[None]:
    """Log to the file, and show warnings on the console, for the duration of a block.

    Of libraries, only warnings are kept: httpx alone logs a line for every request.
    """
    root, ours = logging.getLogger(), logging.getLogger("tileferry")
    level = ours.level
    handlers = [LogFileHandler(config.file, console), TerminalHandler(console, config.file)]
    ours.setLevel(config.level.value)
    mute_default_handler()
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        ours.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()


class LogFileHandler(RotatingFileHandler):
    """A private log file, created with the first record; if it cannot be written, work continues.

    Several processes may write to it: the first to find it full rotates it, and the others follow.
    """

    def __init__(self, path: Path, console: "Console") -> None:
        super().__init__(
            path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8", delay=True
        )
        self._path = path
        self._console = console
        self._told = False

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        if self.formatter is None:
            self.setFormatter(_build_json_formatter())
        return super().format(record)

    def _open(self) -> TextIOWrapper:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802  # overrides a method of logging
        """Return whether the file is full; first reopen it if another process has rotated it."""
        if self.stream is not None and self._is_rotated(self.stream.fileno()):
            self.stream.close()
            self.stream = None  # logging reopens it
        return bool(super().shouldRollover(record))

    def doRollover(self) -> None:  # noqa: N802  # overrides a method of logging
        """Rotate the full file, unless another process is doing so or just did."""
        if self.stream is None:
            return
        with os.fdopen(os.dup(self.stream.fileno()), "rb") as full:
            try:
                fcntl.flock(full, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # the record is written to the old file, which is kept
            except OSError:
                pass  # no locks on this file system: two processes may both rotate
            if not self._is_rotated(full.fileno()):
                super().doRollover()

    def _is_rotated(self, descriptor: int) -> bool:
        try:
            return not os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Close the file; records that a full disk rejected are lost."""
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802  # overrides a method of logging
        """Report once that the log cannot be written."""
        if not self._told:
            self._told = True
            self._console.print(
                f"Cannot write the log {self._path}; continuing without it. Set log.file"
            )


class TerminalHandler(logging.Handler):
    """Shows the first few warnings and errors of each kind."""

    def __init__(self, console: "Console", file: Path) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._file = file
        self._shown: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, unless enough of its kind were shown."""
        kind = str(getattr(record, "kind", record.name))
        if kind in _SHOWN_BY_COMMANDS:
            return
        self._shown[kind] += 1
        if self._shown[kind] <= SHOWN_PER_KIND:
            self._console.print(
                f"{record.levelname.lower()}: {_sanitize_text(record.getMessage())}"
            )
        elif self._shown[kind] == SHOWN_PER_KIND + 1:
            self._console.print(
                f"Further messages of this kind are not shown; see {kind} in {self._file}"
            )


def _build_json_formatter() -> logging.Formatter:
    import structlog  # noqa: PLC0415  # see the module docstring

    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
        processors=[
            _to_envelope,
            structlog.processors.JSONRenderer(ensure_ascii=False, separators=(",", ":")),
        ],
    )


def _to_envelope(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
    """Put the envelope's fields first, and make all text safe for one line of a log."""
    record: logging.LogRecord = fields.pop("_record")
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
    envelope = {
        "timestamp": fields.pop("timestamp", moment.replace("+00:00", "Z")),
        "level": "ERROR" if record.levelno > logging.ERROR else record.levelname,
        "logger": record.name,
        "kind": fields.pop("kind", None),
        "message": fields.pop("event", ""),
    }
    if envelope["kind"] is None:  # logged by a library
        del envelope["kind"]
    crash = fields.pop("exc_info", None)
    for name in ("_from_structlog", "stack_info"):
        fields.pop(name, None)
    if crash and crash[1] is not None:
        fields["traceback"] = "".join(traceback.format_exception(crash[1])).splitlines()
    safe: dict[str, Any] = _sanitize({**envelope, **fields})
    return safe


def _sanitize(value: Any) -> Any:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no infinities
    if isinstance(value, str):
        return _sanitize_text(value)
    if isinstance(value, Mapping):
        return {_sanitize_text(str(key)): _sanitize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sanitize(item) for item in value]
    return _sanitize_text(format_error(value) if isinstance(value, BaseException) else str(value))


def _sanitize_text(text: str) -> str:
    return printable(text, limit=TEXT_CHARS_MAX)
