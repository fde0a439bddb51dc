"""Backfill plans on a real disk: whole, private, and never through a planted link."""

import stat
from pathlib import Path

import pytest

from tileferry.adapters.filesystem import read_plan_file, write_file_atomically
from tileferry.domain.errors import StorageError
from tileferry.domain.partitions import PLAN_BYTES_MAX


def test_plan_file_is_replaced_with_mode_0600(tmp_path: Path) -> None:
    file = tmp_path / "a month.plan"
    file.write_bytes(b"old")
    file.chmod(0o644)
    write_file_atomically(file, b"new")
    assert read_plan_file(file) == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_symlink_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    other, file = tmp_path / "other", tmp_path / "plan"
    other.write_bytes(b"precious")
    file.symlink_to(other)
    write_file_atomically(file, b"new")
    assert (other.read_bytes(), file.is_symlink(), file.read_bytes()) == (
        b"precious",
        False,
        b"new",
    )


def test_missing_folder_is_not_created_for_a_plan(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the folder does not exist"):
        write_file_atomically(tmp_path / "new" / "plan", b"")
    assert list(tmp_path.iterdir()) == []


def test_reading_a_plan_stops_at_the_size_limit(tmp_path: Path) -> None:
    file = tmp_path / "plan"
    with file.open("wb") as sparse:
        sparse.truncate(PLAN_BYTES_MAX * 4)
    assert len(read_plan_file(file)) == PLAN_BYTES_MAX + 1
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(StorageError, match="cannot read"):
            read_plan_file(missing)
