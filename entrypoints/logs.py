"""Log records as their contract has them: one JSON object a line, on stderr."""

import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, cast

import structlog

from tileferry.adapters.logs.audit import StructuredLogger

_ENVELOPE = ("timestamp", "level", "logger", "kind", "message")


def structured_logger(name: str) -> StructuredLogger:
    """Return a logger that writes to stderr: stdout is for data."""

    def enveloped(_logger: Any, method: str, fields: MutableMapping[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        record = {
            "timestamp": now,
            **fields,
            "level": method.upper(),
            "logger": name,
            "message": fields.get("event", ""),
        }
        record.pop("event", None)
        first = {key: record.pop(key) for key in _ENVELOPE if key in record}
        return {**first, **record}

    logger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[enveloped, structlog.processors.JSONRenderer(ensure_ascii=False)],
        wrapper_class=structlog.BoundLogger,
    )
    return cast("StructuredLogger", logger)
