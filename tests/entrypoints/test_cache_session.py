"""Whether a folder can be made is known before it is."""

from pathlib import Path

import pytest

from tileferry.domain.errors import StorageError
from tileferry.entrypoints.cache_session import check_folder, find_folder_problem, make_folder


@pytest.mark.parametrize("below", ["", "cache", "far/below"])
def test_creatable_folder_has_no_problem(tmp_path: Path, below: str) -> None:
    folder = tmp_path / below
    check_folder(folder)
    assert folder.exists() is (below == ""), "looking makes nothing"
    make_folder(folder)
    assert find_folder_problem(folder) is None


@pytest.mark.parametrize("name", ["file", "file/cache", "file/far/below", "link"])
def test_blocking_path_is_named_by_check_and_create(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for attempt in (check_folder, make_folder):
        with pytest.raises(
            StorageError, match=r"set c11\.cache_root to a folder that can be created"
        ):
            attempt(tmp_path / name)
    in_the_way = tmp_path / name.split("/", maxsplit=1)[0]
    assert find_folder_problem(tmp_path / name) == f"{in_the_way}: Not a directory"


def test_relative_folder_is_resolved_from_cwd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_folder_problem(Path("a/b")) is None
    Path("a").touch()
    assert find_folder_problem(Path("a/b")) == f"{tmp_path / 'a'}: Not a directory"
