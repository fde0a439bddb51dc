"""The manifest and the list of files of a backup."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileferry.domain.backups import BackupFile, BackupManifest, DatabaseFacts
from tileferry.domain.errors import InvalidValueError

HASH = "ab" * 32
MANIFEST = BackupManifest(
    created_at=datetime(2026, 11, 18, 3, tzinfo=UTC),
    created_by="0.1.0",
    database=DatabaseFacts(
        schema_revision="0015",
        server_version="18.4",
        tiles=20,
        audit_sequence=7,
        audit_hash=HASH,
    ),
    files=3,
    size_bytes=1_000,
    files_sha256=HASH,
)


def test_manifest_and_lines_are_read_as_written() -> None:
    assert BackupManifest.parse(MANIFEST.format()) == MANIFEST
    file = BackupFile(path="cache/.c11/cache-id", size_bytes=33, sha256=HASH)
    assert BackupFile.parse_line(file.format_line()) == file


@given(st.integers(min_value=0), st.integers(1, 255))
def test_any_changed_byte_of_a_manifest_is_found(place: int, flipped: int) -> None:
    content = bytearray(MANIFEST.format().rstrip())
    content[place % len(content)] ^= flipped
    with pytest.raises(InvalidValueError):
        BackupManifest.parse(bytes(content))


def test_manifest_of_a_later_version_is_refused() -> None:
    later = MANIFEST.format().replace(b'"version":1', b'"version":2')
    with pytest.raises(InvalidValueError, match="reads version 1"):
        BackupManifest.parse(later)
    with pytest.raises(InvalidValueError, match="format: must be"):
        BackupManifest.parse(b"{}")


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a\0b", "a\nb", "."])
def test_invariant_26_paths_outside_the_backup_are_refused(path: str) -> None:
    with pytest.raises(InvalidValueError, match="not a plain path"):
        BackupFile(path=path, size_bytes=0, sha256=HASH)
