"""The chain finds every change."""

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.audit import (
    GENESIS,
    ChainEntry,
    ChainHead,
    ChainProblem,
    build_next_entry,
    verify_chain,
)
from tileferry.domain.errors import InvalidValueError

bodies = st.lists(st.binary(max_size=20), min_size=1, max_size=12)


def build_chain(contents: list[bytes]) -> list[ChainEntry]:
    entries: list[ChainEntry] = []
    head = GENESIS
    for body in contents:
        entries.append(build_next_entry(head, body))
        head = entries[-1].head
    return entries


def test_empty_log_is_intact() -> None:
    report = verify_chain([])
    assert report.intact
    assert report.checked == 0
    assert report.head == GENESIS == ChainHead(sequence=0, hash="0" * 64)


def test_entries_are_numbered_from_one_and_linked() -> None:
    first, second = build_chain([b"a", b"b"])
    assert (first.sequence, first.previous_hash, first.body) == (1, "0" * 64, b"a")
    assert (second.sequence, second.previous_hash, second.body) == (2, first.hash, b"b")
    assert second.head == ChainHead(sequence=2, hash=second.hash)


def test_entry_hash_matches_first_release() -> None:
    assert (
        build_chain([b"a"])[0].hash
        == "d04591c362a071a716f33be6b08d94602be19d23b297d18e16f40c72bb3a7779"
    )


def test_body_must_be_bytes() -> None:
    event: Any = {"event_type": "x"}
    with pytest.raises(InvalidValueError, match="body: must be an event's canonical bytes"):
        build_next_entry(GENESIS, event)


def test_negative_head_sequence_is_rejected() -> None:
    with pytest.raises(InvalidValueError, match=r"ChainHead\.sequence"):
        ChainHead(sequence=-1, hash="")


@given(bodies)
def test_unmodified_log_is_intact(contents: list[bytes]) -> None:
    entries = build_chain(contents)
    report = verify_chain(iter(entries), expected_head=entries[-1].head)
    assert report.intact
    assert report.problem is None
    assert report.checked == len(entries)
    assert report.head == entries[-1].head


@given(bodies, st.data())
def test_invariant_21_flipped_bit_is_detected_at_its_entry(
    contents: list[bytes], data: st.DataObject
) -> None:
    entries = build_chain(contents)
    index = data.draw(st.integers(0, len(entries) - 1))
    victim = entries[index]
    stored = victim.body + bytes.fromhex(victim.hash) + bytes.fromhex(victim.previous_hash)
    bit = data.draw(st.integers(0, len(stored) * 8 - 1))
    flipped = bytearray(stored)
    flipped[bit // 8] ^= 1 << (bit % 8)
    size = len(victim.body)
    entries[index] = evolve(
        victim,
        body=bytes(flipped[:size]),
        hash=flipped[size : size + 32].hex(),
        previous_hash=flipped[size + 32 :].hex(),
    )
    report = verify_chain(entries)
    assert not report.intact
    assert report.checked == index
    expected = ChainProblem.NOT_LINKED if bit // 8 >= size + 32 else ChainProblem.EDITED
    assert report.problem is expected


@given(bodies.filter(lambda contents: len(contents) > 1), st.data())
def test_invariant_21_deleted_entry_is_detected(contents: list[bytes], data: st.DataObject) -> None:
    entries = build_chain(contents)
    index = data.draw(st.integers(0, len(entries) - 2))
    report = verify_chain(entries[:index] + entries[index + 1 :])
    assert report.problem is ChainProblem.GAP
    assert report.checked == index


@given(bodies)
def test_truncated_tail_is_detected_by_expected_head(contents: list[bytes]) -> None:
    entries = build_chain(contents)
    noted = entries[-1].head
    report = verify_chain(entries[:-1], expected_head=noted)
    assert report.problem is ChainProblem.CUT_OFF
    assert report.checked == len(entries) - 1
    assert verify_chain(entries[:-1]).intact


@given(bodies, st.data())
def test_earlier_expected_head_is_accepted(contents: list[bytes], data: st.DataObject) -> None:
    entries = build_chain(contents)
    index = data.draw(st.integers(-1, len(entries) - 1))
    noted = entries[index].head if index >= 0 else GENESIS
    report = verify_chain(entries, expected_head=noted)
    assert report.intact
    assert report.checked == len(entries)


def test_rewritten_tail_is_detected_by_expected_head() -> None:
    noted = build_chain([b"a", b"b"])[-1].head
    assert (
        verify_chain(build_chain([b"a", b"x"]), expected_head=noted).problem is ChainProblem.CUT_OFF
    )


def test_invariant_21_claimed_head_must_be_last_entry() -> None:
    entries = build_chain([b"a", b"b", b"c"])
    report = verify_chain(entries)
    assert report.compare_head(entries[-1].head) == report
    forged = evolve(entries[-1].head, hash="0" * 64)
    for moved in (entries[1].head, forged, GENESIS, ChainHead(sequence=0, hash="f" * 64)):
        assert report.compare_head(moved).problem is ChainProblem.HEAD_MOVED
    missing = build_next_entry(entries[-1].head, b"d").head
    assert report.compare_head(missing).problem is ChainProblem.CUT_OFF
    nothing = verify_chain([])
    assert nothing.compare_head(GENESIS).intact
    odd = nothing.compare_head(ChainHead(sequence=0, hash="f" * 64))
    assert odd.problem is ChainProblem.HEAD_MOVED


def test_earlier_break_is_kept_when_head_is_compared() -> None:
    entries = build_chain([b"a", b"b", b"c"])
    report = verify_chain([entries[0], entries[2]])
    assert report.compare_head(entries[-1].head) == report


def test_renumbered_entry_is_detected() -> None:
    first, _, third = build_chain([b"a", b"b", b"c"])
    moved = evolve(third, sequence=2)
    assert verify_chain([first, moved]).problem is ChainProblem.NOT_LINKED
    relinked = evolve(moved, previous_hash=first.hash)
    assert verify_chain([first, relinked]).problem is ChainProblem.EDITED


def test_verification_resumes_from_given_head() -> None:
    entries = build_chain([b"a", b"b", b"c"])
    report = verify_chain(entries[1:], start=entries[0].head)
    assert report.intact
    assert report.checked == 2
    assert verify_chain(entries[1:]).problem is ChainProblem.GAP


@pytest.mark.parametrize("problem", ChainProblem)
def test_every_chain_problem_has_explanation(problem: ChainProblem) -> None:
    assert len(problem.explanation) > 20
