"""The file that holds the provider's key."""

from pathlib import Path

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config import C11Config
from tileferry.entrypoints.config.loader import read_service_api_key


def read_key(path: Path) -> str:
    return read_service_api_key(C11Config(service_api_key_file=path))


def write_private_file(folder: Path, content: bytes) -> Path:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_trailing_newline_is_stripped_from_key(tmp_path: Path) -> None:
    assert read_key(write_private_file(tmp_path, b"abc\n")) == "abc"


@pytest.mark.parametrize("content", [b"k" * 4_097, b"\xff"])
def test_oversized_or_undecodable_key_is_rejected(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidValueError, match="does not contain an API key"):
        read_key(write_private_file(tmp_path, content))


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_empty_key_file_is_rejected_with_remedy(tmp_path: Path, content: bytes) -> None:
    path = write_private_file(tmp_path, content)
    with pytest.raises(InvalidValueError, match=f"is empty .* write the key into {path}"):
        read_key(path)


def test_endless_device_is_not_read_as_key() -> None:
    with pytest.raises(InvalidValueError, match="can be read by other users"):
        read_key(Path("/dev/zero"))
