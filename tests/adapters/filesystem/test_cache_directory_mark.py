"""The file with a cache's id: whole or refused, and looking makes none."""

from pathlib import Path

import pytest

from tileferry.adapters.filesystem import FileCacheMark
from tileferry.domain.errors import StorageError
from tileferry.domain.tiles.cache_binding import CacheId

ID = CacheId("0123456789abcdef" * 2)


def test_reading_the_cache_id_creates_no_files(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    mark = FileCacheMark(root=root)
    assert mark.read() is None
    assert not root.exists()
    root.mkdir()
    assert mark.read() is None
    assert list(root.iterdir()) == []


def test_cache_id_file_is_one_line_with_mode_0600(tmp_path: Path) -> None:
    FileCacheMark(root=tmp_path).write(ID)
    file = tmp_path / ".c11" / "cache-id"
    assert file.read_text("ascii") == f"{ID}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in file.parent.iterdir()] == ["cache-id"]


@pytest.mark.parametrize("content", [b"", b"\xff" * 32, b"0123", ID.encode() * 100])
def test_malformed_cache_id_is_rejected(tmp_path: Path, content: bytes) -> None:
    mark = FileCacheMark(root=tmp_path)
    mark.write(ID)
    (tmp_path / ".c11" / "cache-id").write_bytes(content)
    with pytest.raises(StorageError, match="is not a valid cache id"):
        mark.read()
