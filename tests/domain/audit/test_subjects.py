"""What an event tells of."""

import json

import attrs
import pytest
from support.audit_events import (
    create_idempotency_used,
    create_one_event_of_each_type,
    create_retry_attempted,
)

from tileferry.domain.audit import EVENT_KINDS, EntryIndexKeys, get_subject, is_about


def test_each_event_kind_has_at_most_one_subject() -> None:
    subjects = [get_subject(event) for event in create_one_event_of_each_type()]
    assert subjects == ["k1", "k2", "key-3", None, "run 7", "sat/15/1/2", "k7", None, None]
    for kind in EVENT_KINDS.values():
        names = {item.name for item in attrs.fields(kind)}
        assert len(names & {"idempotency_key", "subject", "tile_id"}) <= 1


def test_body_matches_its_correlation_id_and_subject() -> None:
    for event in create_one_event_of_each_type():
        body = event.canonical_bytes()
        for subject in (event.correlation_id, get_subject(event)):
            assert subject is None or is_about(body, subject)
        assert not is_about(body, "another")


def test_other_body_fields_are_not_its_subject() -> None:
    body = create_retry_attempted(1).canonical_bytes()
    assert not any(is_about(body, other) for other in ("trace-1", "tenant-123", "GET tile ☁", ""))


def test_index_fields_are_read_from_body() -> None:
    for event in create_one_event_of_each_type():
        assert EntryIndexKeys.parse(event.canonical_bytes()) == EntryIndexKeys(
            event_type=event.event_type,
            timestamp=event.timestamp,
            correlation_id=event.correlation_id,
            subject=get_subject(event),
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("event_type", ["idempotency"]),
        ("event_type", "of another version"),
        ("timestamp", "2026-11-01T12:00:00"),
        ("timestamp", "yesterday"),
        ("timestamp", 5),
        ("correlation_id", ["corr-1"]),
        ("idempotency_key", {}),
    ],
)
def test_body_with_invalid_index_field_has_no_subject(name: str, value: object) -> None:
    body = create_idempotency_used(1, "key-1").as_json()
    assert EntryIndexKeys.parse(json.dumps(body).encode()) is not None
    for other in ({**body, name: value}, {k: v for k, v in body.items() if k != name}):
        said = EntryIndexKeys.parse(json.dumps(other).encode())
        assert said is None or said.subject is None  # a missing key is no subject


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"corr-1"', b"\xff", b"[" * 100_000, b'{"correlation_id":["x"]}']
)
def test_body_that_is_not_event_matches_nothing(body: bytes) -> None:
    assert not is_about(body, "corr-1")
    assert EntryIndexKeys.parse(body) is None
