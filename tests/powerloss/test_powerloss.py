"""The parts of ``make powerloss`` that need neither root nor a mount."""

import os
import struct
import sys
from pathlib import Path

import pytest

from powerloss import storage, syncs
from powerloss.__main__ import main
from powerloss.block_events import HEADER, BlockEvent, EventKind
from powerloss.images import DiskHistory, Moment, PowerCut, Survivors, choose_cuts
from tileferry.adapters.filesystem.archives import tree
from tileferry.adapters.filesystem.files import Directory, FileCalls

BLOCK = 1_024


@pytest.fixture
def able_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(storage, "TOOLS", ("sh",))
    monkeypatch.setattr(storage, "DEVICES", ())
    monkeypatch.setattr(sys, "argv", ["powerloss"])


@pytest.mark.usefixtures("able_machine")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DEVICES", (Path("/dev/no-fuse"),), "cannot open /dev/no-fuse: No such file or directory"),
        ("TOOLS", ("no-losetup",), "no-losetup is not installed"),
    ],
)
def test_missing_device_or_tool_is_one_line_and_an_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: object,
    said: str,
) -> None:
    monkeypatch.setattr(storage, name, value)
    assert main() == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
    assert shown.err.startswith(f"powerloss: cannot run: {said}")


@pytest.mark.usefixtures("able_machine")
def test_ordinary_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main() == 2


def make_history(folder: Path, *writes: int | None, size: int = 4) -> DiskHistory:
    """A disk of ``size`` blocks; a number writes that block, ``None`` flushes. One a second."""
    (folder / "base.img").write_bytes(bytes(size * BLOCK))
    with (folder / "log").open("wb") as log:
        for second, block in enumerate(writes):
            data = b"" if block is None else bytes([second + 1]) * BLOCK
            kind = EventKind.FLUSH if block is None else EventKind.WRITE
            log.write(HEADER.pack(kind, float(second), (block or 0) * BLOCK, len(data)) + data)
        log.write(struct.pack("<B", EventKind.WRITE))  # cut off
    return DiskHistory.read(folder / "base.img", folder / "log")


def read_blocks(folder: Path, history: DiskHistory, cut: str) -> list[set[int]]:
    history.write_image(PowerCut.parse(cut), folder / "cut.img")
    image = (folder / "cut.img").read_bytes()
    return [set(image[start : start + BLOCK]) for start in range(0, len(image), BLOCK)]


def test_image_has_what_was_flushed_and_the_survivors(tmp_path: Path) -> None:
    history = make_history(tmp_path, 0, 1, None, 0, 2, None, 3)
    assert read_blocks(tmp_path, history, "1:none:0") == [{0}, {0}, {0}, {0}]
    assert read_blocks(tmp_path, history, "1:all:0") == [{1}, {2}, {0}, {0}]
    assert read_blocks(tmp_path, history, "4:none:0") == [{1}, {2}, {0}, {0}]
    assert read_blocks(tmp_path, history, "4:all:0") == [{4}, {2}, {5}, {0}]
    assert read_blocks(tmp_path, history, "6:none:0") == [{4}, {2}, {5}, {0}]


def test_image_forgets_what_a_recovery_wrote(tmp_path: Path) -> None:
    history = make_history(tmp_path, 0, None, 1, size=1_024)
    expected = read_blocks(tmp_path, history, "2:none:0")
    with (tmp_path / "cut.img").open("r+b") as image:
        for block in (1, 900):  # where the disk had data, and where it never had any
            image.seek(block * BLOCK)
            image.write(b"recovered")
    assert read_blocks(tmp_path, history, "2:none:0") == expected


def test_torn_write_leaves_some_sectors(tmp_path: Path) -> None:
    history = make_history(tmp_path, *range(4))
    found = {
        frozenset(block)
        for seed in range(20)
        for block in read_blocks(tmp_path, history, f"3:torn:{seed}")
    }
    assert frozenset({0, 1}) in found, "a block with an old and a new sector"


def test_second_disk_is_cut_at_the_same_time(tmp_path: Path) -> None:
    history = make_history(tmp_path, 0, None, 1)
    assert [history.find_cut(at_s).index for at_s in (-1.0, 1.5, 9.0)] == [0, 1, 2]


def make_events(count: int) -> list[BlockEvent]:
    return [
        BlockEvent(
            kind=EventKind.WRITE if number % 3 else EventKind.FLUSH,
            at_s=float(number),
            offset=0,
            length=0,
            position=0,
        )
        for number in range(count)
    ]


def test_cuts_follow_each_promise_and_reach_each_phase() -> None:
    moments = [Moment(9.5, "long"), Moment(50.5), Moment(900.5, "short"), Moment(950.5)]
    cuts = choose_cuts(make_events(1_000), moments, 60, seed=1, whole=False)
    assert {"51:none:0", "951:none:0"} <= set(map(str, cuts))
    assert [cut.index for cut in cuts] == sorted(cut.index for cut in cuts)
    assert cuts[0].index >= 10, "nothing is promised before the first phase"
    short = [cut for cut in cuts if cut.index >= 901]
    assert len(cuts) > 55
    assert abs(len(short) - 30) <= 3
    assert {cut.survivors for cut in cuts} == set(Survivors)


def test_without_a_journal_all_cuts_leave_what_was_flushed() -> None:
    cuts = choose_cuts(make_events(300), [Moment(0.5, "all")], 20, seed=1, whole=True)
    assert {cut.survivors for cut in cuts} == {Survivors.NONE}


@pytest.mark.parametrize(
    ("bug", "skipped"),
    [
        ("segments", {"file": True, "folder": False}),
        ("folders", {"file": False, "folder": True}),
        ("journal", {"file": False, "folder": False}),
    ],
)
def test_planted_bug_skips_its_syncs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str, skipped: dict[str, bool]
) -> None:
    done: list[int] = []
    for owner, name in ((os, "fsync"), (os, "fdatasync"), (tree, "_sync_filesystem")):
        monkeypatch.setattr(owner, name, done.append)
    monkeypatch.setattr(FileCalls, "__init__", FileCalls.__init__)
    syncs.SyncWatch(syncs.BUGS[bug], kill_at=None).install()
    with (
        Directory.open_root(tmp_path / "cache", FileCalls()) as root,
        root.subdirectory(".c6") as store,
        store.subdirectory("segments") as segments,
        segments.create_file("1") as file,
    ):
        done.clear()
        segments.sync()
        assert (not done) is skipped["folder"]
        done.clear()
        file.fdatasync()
        assert (not done) is skipped["file"]
