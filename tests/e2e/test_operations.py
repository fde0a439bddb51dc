"""The documented runbooks, step by step: upgrade to a new schema, and roll back to the old one."""

import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.backup_env import create_restored, list_rows
from support.download_operator import DOWNLOAD, DownloadOperator

from tileferry.adapters.postgres import Database, database_copies, downgrade, migrate
from tileferry.migrations import REVISIONS

PAGE = (Path(__file__).parents[2] / "_docs/operations.md").read_text(encoding="utf-8")
OLD = REVISIONS[:-1]
NEW = REVISIONS[-1]


def read_runbook(name: str) -> Iterator[list[str]]:
    block = PAGE.split(f"<!-- runbook: {name} -->")[1].split("<!-- end -->")[0]
    for line in re.findall(r"^(?!`|#)(\S.*)$", block, re.MULTILINE):
        yield shlex.split(line, comments=True)


def use_version(patch: pytest.MonkeyPatch, revisions: tuple[str, ...]) -> None:
    """Let commands be those of the version that needs the last of these revisions."""
    patch.setattr(migrate, "REVISIONS", revisions)
    patch.setattr(database_copies, "REVISIONS", revisions)


def run_step(operator: DownloadOperator, words: list[str], root: Path) -> None:
    command = [str(root / word[1:]) if word.startswith("/srv/") else word for word in words]
    ran = operator.run_in_process(*command[1:])
    assert ran.code == 0, (words, ran)


def find_revision(operator: DownloadOperator) -> str | None:
    with closing(Database.from_url(operator.database_url)) as database:
        return migrate.get_schema_status(database).found


def test_runbooks_upgrade_and_roll_back(
    operator: DownloadOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operator.run_in_process(*DOWNLOAD).code == 0
    tiles = list_rows(operator)
    (tmp_path / "srv/backups").mkdir(parents=True)
    with closing(Database.from_url(operator.database_url)) as database:
        downgrade(database, OLD[-1])
    use_version(monkeypatch, OLD)
    for words in read_runbook("upgrade"):
        if words[0] == "tileferry":
            if words[1] != "doctor":  # it calls the provider, and has tests of its own
                run_step(operator, words, tmp_path)
        elif "ln" in words:
            use_version(monkeypatch, REVISIONS)
    assert find_revision(operator) == NEW
    assert list_rows(operator) == tiles
    with create_restored(operator, tmp_path / "old") as old:
        for words in read_runbook("roll back"):
            if words[0] == "tileferry":
                run_step(old, words, tmp_path)
            elif "ln" in words:
                use_version(monkeypatch, OLD)
        assert find_revision(old) == OLD[-1]
    use_version(monkeypatch, REVISIONS)
    with create_restored(operator, tmp_path / "new") as new:
        restore = ["tileferry", "backup", "restore", "/srv/backups/before-upgrade"]
        run_step(new, restore, tmp_path)
        assert find_revision(new) == NEW
        assert list_rows(new) == tiles


def test_backup_of_an_unknown_schema_is_refused(
    operator: DownloadOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operator.run_in_process("backup", "create", str(tmp_path / "later")).code == 0
    use_version(monkeypatch, OLD)
    with create_restored(operator, tmp_path / "other") as other:
        ran = other.run_in_process("backup", "restore", str(tmp_path / "later"))
        assert (ran.code, "does not know" in ran.err) == (4, True)
