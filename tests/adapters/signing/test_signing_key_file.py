"""The file with the key that signs packs: which files are refused."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tileferry.adapters.signing import Ed25519KeyFile
from tileferry.domain.errors import StorageError


def create_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def create_link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def create_readable_key(path: Path) -> None:
    path.write_bytes(bytes(32))
    path.chmod(0o640)


def create_short_key(path: Path) -> None:
    path.touch(0o600)


@pytest.mark.parametrize(
    "create",
    [create_pipe, create_link_to_nowhere, create_readable_key, create_short_key, Path.mkdir],
)
def test_file_that_cannot_keep_a_key_is_refused(
    tmp_path: Path, create: Callable[[Path], None]
) -> None:
    create(tmp_path / "key")
    with pytest.raises(StorageError, match="key"):
        _ = Ed25519KeyFile(tmp_path / "key").public_key


def test_key_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _ = Ed25519KeyFile(tmp_path / "key").public_key
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(StorageError, match="belongs to this user"):
        _ = Ed25519KeyFile(tmp_path / "key").public_key


def test_key_is_kept(tmp_path: Path) -> None:
    first = Ed25519KeyFile(tmp_path / "new" / "key").public_key
    assert Ed25519KeyFile(tmp_path / "new" / "key").public_key == first
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["key"]
