"""An error is kept with its run on one line that is safe to show."""

import errno
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.errors import DatabaseError, TileManagerError
from tileferry.domain.runs import (
    EXPLANATION_CHARS_MAX,
    RunId,
    RunKind,
    WorkerId,
    claim,
    classify_error,
    explain_error,
    record_error,
    submit,
)
from tileferry.domain.state_machine import Actor
from tileferry.domain.text import printable

NOW = datetime(2024, 1, 5, 12, tzinfo=UTC)


class Unspeakable(Exception):  # noqa: N818  # it is not told as an error either
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DatabaseError(problem="gone", remedy="start it"), "database: gone; start it"),
        (TileManagerError(), "TileManagerError"),
        (OSError(errno.ENOSPC, "No space left"), f"OSError: [Errno {errno.ENOSPC}] No space left"),
        (KeyError("x"), "KeyError: 'x'"),
        (MemoryError(), "MemoryError"),
        (Unspeakable(), "Unspeakable"),
        (RuntimeError("a\n\x1b[31mb\u202e"), "RuntimeError: a\\n\\x1b[31mb\\u202e"),
        (
            RuntimeError("at postgresql://me:s3cret@db/x"),
            "RuntimeError: at postgresql://***@db/x",
        ),
        (RuntimeError("host=db password=s3cret"), "RuntimeError: host=db password=***"),
        (RuntimeError("{'api_key': 's3cret'}"), "RuntimeError: {'api_key': ***"),
        (RuntimeError("Authorization: Bearer s3cret"), "RuntimeError: Authorization: Bearer ***"),
    ],
)
def test_error_is_explained_on_one_line_with_secrets_redacted(
    error: BaseException, line: str
) -> None:
    assert explain_error(error) == line


def test_truncated_secret_is_redacted() -> None:
    secret = "s3cret" * 100
    for text in (f"postgresql://me:{secret}@db", f"token={secret}", f"Bearer {secret}"):
        assert "s3cret" not in explain_error(RuntimeError(f"{'x' * 150} {text}"))


@given(st.text() | st.text(alphabet=["\0", "\u202e", "\ud800", "b", "e", "a", "r", " "]))
def test_explanation_is_printable_and_bounded(text: str) -> None:
    for error in (RuntimeError(text), TileManagerError(text)):
        line = explain_error(error)
        assert line.isprintable()
        assert 0 < len(line) <= EXPLANATION_CHARS_MAX
        assert printable(line) == line


def test_run_error_message_is_the_explanation() -> None:
    owner, hour = WorkerId("w1"), timedelta(hours=1)
    run = submit(
        run_id=RunId("r1"),
        kind=RunKind.UPLOAD_FLIGHT,
        source="sat",
        actor=Actor.OPERATOR,
        now=NOW,
    ).after
    run = claim(run, actor=Actor.WORKER, owner=owner, now=NOW, lease=hour).after
    error = RuntimeError("\x00" * 300)
    change = record_error(
        run,
        classify_error(error),
        explain_error(error),
        actor=Actor.WORKER,
        owner=owner,
        epoch=1,
        now=NOW,
    )
    assert change.after.error_message == explain_error(error)
    assert change.after.error_class == "retryable"
