"""What an event tells of."""

import json

import attrs
import pytest
from support.audit_events import attempted, every_kind, used

from tileferry.domain.audit import EVENT_KINDS, FiledUnder, subject_of, tells_of


def test_each_kind_has_one_subject_or_none() -> None:
    subjects = [subject_of(event) for event in every_kind()]
    assert subjects == ["k1", "k2", "key-3", None, "run 7", "sat/15/1/2"]
    for kind in EVENT_KINDS.values():
        names = {item.name for item in attrs.fields(kind)}
        assert len(names & {"idempotency_key", "subject", "tile_id"}) <= 1


def test_a_body_tells_of_its_correlation_id_and_its_subject() -> None:
    for event in every_kind():
        body = event.canonical_bytes()
        for subject in (event.correlation_id, subject_of(event)):
            assert subject is None or tells_of(body, subject)
        assert not tells_of(body, "another")


def test_what_else_stands_in_a_body_is_not_its_subject() -> None:
    body = attempted(1).canonical_bytes()
    assert not any(tells_of(body, other) for other in ("trace-1", "tenant-123", "GET tile ☁", ""))


def test_what_an_entry_is_filed_under_is_read_from_its_body_alone() -> None:
    for event in every_kind():
        assert FiledUnder.read_from(event.canonical_bytes()) == FiledUnder(
            event_type=event.event_type,
            timestamp=event.timestamp,
            correlation_id=event.correlation_id,
            subject=subject_of(event),
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
def test_a_body_that_does_not_say_what_it_is_filed_under(name: str, value: object) -> None:
    body = used(1, "key-1").as_json()
    assert FiledUnder.read_from(json.dumps(body).encode()) is not None
    for other in ({**body, name: value}, {k: v for k, v in body.items() if k != name}):
        said = FiledUnder.read_from(json.dumps(other).encode())
        assert said is None or said.subject is None  # a missing key is no subject


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"corr-1"', b"\xff", b"[" * 100_000, b'{"correlation_id":["x"]}']
)
def test_a_body_that_is_no_event_tells_of_nothing(body: bytes) -> None:
    assert not tells_of(body, "corr-1")
    assert FiledUnder.read_from(body) is None
