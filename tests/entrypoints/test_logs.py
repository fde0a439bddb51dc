"""The log: its records' form, what people see of it, and what stays out of both."""

import errno
import fcntl
import json
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from rich.console import Console

from tileferry.entrypoints import logs
from tileferry.entrypoints.config import LogConfig, LogLevel
from tileferry.entrypoints.logs import SHOWN_PER_KIND, LogFileHandler, get_structured_logger, log_to

EVIL = "\x1b[2J\u202egpj\nINFO forged"
OURS = logging.getLogger("tileferry.tests")


@define
class Log:
    """A log to look into."""

    config: LogConfig
    console: Console

    @property
    def records(self) -> list[dict[str, Any]]:
        if not self.config.file.exists():
            return []
        text = self.config.file.read_text("utf-8")
        assert text.replace("\n", "").isprintable()
        return [json.loads(line) for line in text.splitlines()]

    @property
    def shown(self) -> list[str]:
        assert isinstance(self.console.file, StringIO)
        return self.console.file.getvalue().splitlines()


def new_log(file: Path, level: LogLevel = LogLevel.INFO) -> Log:
    console = Console(file=StringIO(), markup=False, highlight=False, soft_wrap=True)
    return Log(LogConfig(file=file, level=level), console)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = new_log(tmp_path / "state" / "log.jsonl")
    with log_to(made.config, made.console):
        yield made


def test_record_has_standard_fields_before_extra_fields(log: Log) -> None:
    OURS.info("%d tiles", 3, extra={"kind": "c11.x", "tiles": 3, "share": 0.5, "of": ["a", None]})
    (record,) = log.records
    assert [*record] == ["timestamp", "level", "logger", "kind", "message", "tiles", "share", "of"]
    assert record["timestamp"].endswith("Z")
    assert (record["level"], record["logger"]) == ("INFO", "tileferry.tests")
    assert (record["kind"], record["message"]) == ("c11.x", "3 tiles")
    assert (record["tiles"], record["share"], record["of"]) == (3, 0.5, ["a", None])
    assert log.shown == []


def test_log_file_is_private_to_owner(log: Log) -> None:
    OURS.info("x", extra={"kind": "a.b"})
    assert log.config.file.stat().st_mode & 0o777 == 0o600
    assert log.config.file.parent.stat().st_mode & 0o777 == 0o700


def test_structlog_records_have_same_format(log: Log) -> None:
    get_structured_logger("tileferry.audit").warning("audit: x", kind="audit.x", attempt=2)
    (record,) = log.records
    assert [*record] == ["timestamp", "level", "logger", "kind", "message", "attempt"]
    assert (record["level"], record["message"]) == ("WARNING", "audit: x")


def test_only_warnings_of_libraries_are_logged(log: Log) -> None:
    logging.getLogger("httpx").info("HTTP Request: GET http://127.0.0.1/")
    logging.getLogger("httpx").warning("odd")
    (record,) = log.records
    assert (record["logger"], record["message"]) == ("httpx", "odd")
    assert "kind" not in record


@pytest.mark.parametrize(("level", "count"), [(LogLevel.DEBUG, 3), (LogLevel.ERROR, 1)])
def test_log_level_is_applied(tmp_path: Path, level: LogLevel, count: int) -> None:
    log = new_log(tmp_path / "log.jsonl", level)
    with log_to(log.config, log.console):
        for number in (logging.DEBUG, logging.INFO, logging.CRITICAL):
            OURS.log(number, "x", extra={"kind": "a.b"})
    assert len(log.records) == count
    assert log.records[-1]["level"] == "ERROR"


def test_handlers_are_removed_on_exit(tmp_path: Path) -> None:
    before = list(logging.getLogger().handlers)
    log = new_log(tmp_path / "log.jsonl")
    with log_to(log.config, log.console):
        pass
    OURS.warning("late", extra={"kind": "a.b"})
    assert logging.getLogger().handlers == before
    assert (log.records, log.shown) == ([], [])
    assert not log.config.file.exists()


def test_invariant_36_control_characters_in_log_are_escaped(log: Log) -> None:
    OURS.warning(
        "it said %s", EVIL, extra={"kind": "a.b", "reason": EVIL, "deep": {EVIL: [EVIL, object()]}}
    )
    (record,) = log.records  # which checks every character
    assert record["message"] == "it said \\x1b[2J\\u202egpj\\nINFO forged"
    assert record["reason"] in record["deep"]
    (line,) = log.shown
    assert line == "warning: it said \\x1b[2J\\u202egpj\\nINFO forged"


def raise_error(value: object) -> None:
    raise RuntimeError(value)


def test_invariant_34_authorization_header_is_redacted_everywhere(log: Log) -> None:
    headers = {"authorization": "Bearer canary-1"}
    try:
        raise_error(headers)
    except RuntimeError:
        OURS.exception("crashed with %s", headers, extra={"kind": "a.b", "headers": headers})
    (record,) = log.records
    assert record["headers"] == {"authorization": "Bearer ***"}
    assert record["traceback"][0] == "Traceback (most recent call last):"
    assert "Bearer ***" in record["traceback"][-1]
    assert "canary-1" not in json.dumps(record) + "".join(log.shown)


def test_non_finite_numbers_are_logged_as_text(log: Log) -> None:
    OURS.info("x", extra={"kind": "a.b", "rate": float("nan"), "limit": float("inf")})
    (record,) = log.records
    assert (record["rate"], record["limit"]) == ("nan", "inf")


def test_console_shows_few_records_per_kind_and_log_path(log: Log) -> None:
    for number in range(20):
        OURS.warning("tile %d", number, extra={"kind": "c11.rejected"})
    OURS.error("disk", extra={"kind": "c6.disk"})
    assert len(log.shown) == SHOWN_PER_KIND + 2
    assert log.shown[0] == "warning: tile 0"
    assert "c11.rejected" in log.shown[SHOWN_PER_KIND]
    assert log.config.file.name in log.shown[SHOWN_PER_KIND]
    assert log.shown[-1] == "error: disk"
    assert len(log.records) == 21


@pytest.mark.parametrize(
    "kind", ["retry.attempt", "c11.ingest.refused", "c6.import.refused", "c6.export.damaged"]
)
def test_records_printed_by_commands_are_not_repeated_on_console(log: Log, kind: str) -> None:
    OURS.warning("as the command says", extra={"kind": kind})
    assert log.shown == []
    assert len(log.records) == 1


def test_unwritable_log_file_does_not_stop_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = new_log(tmp_path / "file" / "log.jsonl")
    with log_to(log.config, log.console):
        OURS.info("a", extra={"kind": "a.b"})
        OURS.info("b", extra={"kind": "a.b"})
    (line,) = log.shown
    assert "continuing without it" in line


def test_log_files_are_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES_MAX", 2_000)
    log = new_log(tmp_path / "log.jsonl")
    with log_to(log.config, log.console):
        for number in range(200):
            OURS.info("number %d", number, extra={"kind": "a.b"})
    files = sorted(tmp_path.iterdir())
    assert len(files) == logs.FILES_KEPT + 1
    assert all(file.stat().st_size <= 2_000 for file in files)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)
    assert log.records[-1]["message"] == "number 199"


def make_record(number: int) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": f"number {number}", "kind": "a.b", "levelno": 20})


def read_messages(folder: Path) -> set[str]:
    lines = [line for file in folder.iterdir() for line in file.read_text("utf-8").splitlines()]
    return {json.loads(line)["message"] for line in lines}


def test_several_processes_share_one_log_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES_MAX", 4_000)
    files = [LogFileHandler(tmp_path / "log.jsonl", Console(file=StringIO())) for _ in range(6)]
    for number in range(72):  # what fills two files and a half
        files[number % 6].emit(make_record(number))
    for file in files:
        file.close()
    assert read_messages(tmp_path) == {f"number {number}" for number in range(72)}
    assert all(file.stat().st_size <= 4_000 for file in tmp_path.iterdir())


def test_record_is_written_while_another_process_rotates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES_MAX", 200)
    path = tmp_path / "log.jsonl"
    file = LogFileHandler(path, Console(file=StringIO()))
    file.emit(make_record(0))
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        file.emit(make_record(1))
    assert [*tmp_path.iterdir()] == [path]
    file.emit(make_record(2))
    file.close()
    assert read_messages(tmp_path) == {"number 0", "number 1", "number 2"}
    assert "number 2" in path.read_text("utf-8")


def test_log_is_rotated_without_file_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(logs, "FILE_BYTES_MAX", 200)
    monkeypatch.setattr(fcntl, "flock", refuse)
    file = LogFileHandler(tmp_path / "log.jsonl", Console(file=StringIO()))
    for number in range(3):
        file.emit(make_record(number))
    file.close()
    assert read_messages(tmp_path) == {"number 0", "number 1", "number 2"}
    assert len([*tmp_path.iterdir()]) == 3


def test_removed_log_file_is_recreated(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    file = LogFileHandler(path, Console(file=StringIO()))
    file.emit(make_record(0))
    path.unlink()
    file.emit(make_record(1))
    file.close()
    assert read_messages(tmp_path) == {"number 1"}


def test_full_disk_does_not_stop_work() -> None:
    console = Console(file=StringIO())
    with log_to(LogConfig(file=Path("/dev/full")), console):
        OURS.info("one", extra={"kind": "tests.one"})
        OURS.info("two", extra={"kind": "tests.two"})
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().count("continuing without it") == 1
