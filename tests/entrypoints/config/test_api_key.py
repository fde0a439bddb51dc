"""The file that holds the provider's key."""

from pathlib import Path

import pytest

from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config import C11Config
from tileferry.entrypoints.config.api_key import service_api_key


def key_in(path: Path) -> str:
    return service_api_key(C11Config(service_api_key_file=path))


def closed_file(folder: Path, content: bytes) -> Path:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_a_key_comes_without_the_line_break_after_it(tmp_path: Path) -> None:
    assert key_in(closed_file(tmp_path, b"abc\n")) == "abc"


@pytest.mark.parametrize("content", [b"k" * 4_097, b"\xff"])
def test_what_is_no_key_is_refused_and_never_cut_to_one(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidValueError, match="does not hold a key"):
        key_in(closed_file(tmp_path, content))


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_a_file_without_a_key_is_told_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = closed_file(tmp_path, content)
    with pytest.raises(InvalidValueError, match=f"is empty .* write the key into {path}"):
        key_in(path)


def test_a_device_without_end_is_not_read_to_its_end() -> None:
    with pytest.raises(InvalidValueError, match="is open to others"):
        key_in(Path("/dev/zero"))
