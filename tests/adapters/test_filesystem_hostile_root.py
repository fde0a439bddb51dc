"""Everything that writes below a cache's root, against somebody who can write there too.

Which texts are no tile id, and which names no journal, is tested where they are refused: in
``tests/domain/tiles/test_tile_id.py`` and ``tests/contracts/test_journal_store.py``.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from tileferry.adapters.filesystem import (
    FileCacheLock,
    FileCacheMark,
    FileFdrClient,
    FileJournalStore,
    SegmentTileStore,
)
from tileferry.adapters.memory import ManualClock
from tileferry.adapters.memory.tiles import MemoryTileMetadataStore
from tileferry.application.cache.group_commit import GroupCommit, TileBatch
from tileferry.domain.errors import CacheLockError, InvalidValueError, StorageError
from tileferry.domain.tiles import SectorClass, TileId
from tileferry.domain.tiles.cache_binding import CacheId

NOW = datetime(2026, 6, 1, tzinfo=UTC)
JOURNAL = "flight-7__0123456789abcdef.json"


class Cache:
    """All parts that write below one root, as the container assembles them."""

    def __init__(self, root: Path, journal_name: str = JOURNAL) -> None:
        clock = ManualClock(NOW.timestamp())
        self.rows = MemoryTileMetadataStore(clock=clock)
        with ExitStack() as undo:
            self.lock = FileCacheLock(root=root)
            self.lock.acquire()
            undo.callback(self.lock.release)
            mark = FileCacheMark(root=root)
            if mark.read() is None:
                mark.write(CacheId("0" * 32))
            self.store = SegmentTileStore(root=root, index=self.rows, segment_bytes_max=300)
            undo.callback(self.store.close)
            logger = logging.getLogger("test")
            self.journal = FileJournalStore(root=root, logger=logger).open(journal_name)
            undo.callback(self.journal.close)
            self.fdr = FileFdrClient(root=root, clock=clock)
            undo.callback(self.fdr.close)
            self._close = undo.pop_all()
        self.group = GroupCommit(
            tile_store=self.store, metadata_store=self.rows, journal=self.journal, clock=clock
        )

    def use(self, number: int = 1) -> None:
        """Write with every part."""
        batch = TileBatch(flight_id="flight-7", sector_class=SectorClass.STABLE_REAR).append(
            tile(number),
            content(number),
            digest=sha256(content(number)).digest(),
            produced_at=NOW,
            resolution_m_per_px=0.6,
        )
        self.group.add(batch)
        self.group.flush()
        self.fdr.record("test.event", {"number": number}, durable=True)

    def close(self) -> None:
        self._close.close()


def tile(number: int) -> TileId:
    return TileId(source="sat", zoom=15, x=number, y=number)


def content(number: int) -> bytes:
    return b"%200d" % number


def use_once(root: Path) -> None:
    cache = Cache(root)
    try:
        cache.use()
        cache.journal.finish()
    finally:
        cache.close()


def walk_paths(path: Path) -> Iterator[Path]:
    for here, directories, files in os.walk(path):
        for name in (*directories, *files):
            yield Path(here) / name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A place outside of the root, with a file that nobody may touch."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").write_bytes(b"precious")
    return tmp_path / "elsewhere"


def is_untouched(elsewhere: Path) -> bool:
    return [(path.name, path.read_bytes()) for path in elsewhere.iterdir()] == [
        ("precious", b"precious")
    ]


def link_to_directory(elsewhere: Path) -> Path:
    return elsewhere


def link_to_file(elsewhere: Path) -> Path:
    return elsewhere / "precious"


def link_to_nothing(elsewhere: Path) -> Path:
    return elsewhere / "nothing"


PLACES = [
    ".c6",
    ".c6/segments",
    ".c6/segments/000000001.seg",
    ".c11",
    ".c11/lock",
    ".c11/cache-id",
    ".c11/journal",
    f".c11/journal/{JOURNAL}",
    ".c11/fdr",
    ".c11/fdr/fdr-0000000001.log",
]


@pytest.mark.parametrize("target", [link_to_directory, link_to_file, link_to_nothing])
@pytest.mark.parametrize("place", PLACES)
def test_invariant_27_planted_symlink_is_never_followed(
    root: Path, elsewhere: Path, place: str, target: Callable[[Path], Path]
) -> None:
    link = root / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target(elsewhere))
    if place.endswith(".seg"):
        use_once(root)  # its number is taken, so the next one is used
    else:
        with pytest.raises(StorageError, match="unexpected symbolic link"):
            use_once(root)
    assert is_untouched(elsewhere)
    assert link.is_symlink(), "it is evidence"


@pytest.mark.parametrize("place", [".c6", ".c6/segments", ".c11", ".c11/journal", ".c11/fdr"])
def test_invariant_27_symlink_planted_during_a_download_is_not_followed(
    root: Path, elsewhere: Path, place: str
) -> None:
    cache = Cache(root)
    cache.use(1)
    (root / place).rename(root / "moved")
    (root / place).symlink_to(elsewhere)
    for number in range(2, 8):  # over several segments
        cache.use(number)
    assert [cache.store.read_tile(tile(n)) for n in range(1, 8)] == [
        content(n) for n in range(1, 8)
    ]
    cache.journal.finish()
    cache.close()
    assert is_untouched(elsewhere)


def test_invariant_27_lock_file_replaced_by_a_symlink_is_not_held(
    root: Path, elsewhere: Path
) -> None:
    cache = Cache(root)
    (root / ".c11/lock").unlink()
    (root / ".c11/lock").symlink_to(elsewhere / "precious")
    with pytest.raises(CacheLockError):
        cache.lock.check_held()
    cache.close()
    assert is_untouched(elsewhere)


def test_invariant_27_all_created_files_are_private_to_their_owner(root: Path) -> None:
    (root / ".c6").mkdir()
    (root / ".c6").chmod(0o777)
    (root / ".c11/journal").mkdir(parents=True)
    (root / ".c11/journal").chmod(0o755)
    mask = os.umask(0)
    try:
        use_once(root / "new/root")
        use_once(root)
    finally:
        os.umask(mask)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in walk_paths(root)}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert len(modes) > 15


@pytest.mark.parametrize(
    "name",
    [
        f"../{JOURNAL}",
        f"../../{JOURNAL}",
        f"x/../{JOURNAL}",
        f"..{JOURNAL}",
        f"/tmp/{JOURNAL}",  # noqa: S108  # refused, not used
        f"a\0{JOURNAL}",
        f"{JOURNAL}\0",
        "a" * 65 + "__0123456789abcdef.json",
        "a" * 5_000 + "__0123456789abcdef.json",
        "..",
        "",
    ],
)
def test_invariant_26_journal_name_with_a_path_is_rejected(root: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match="journal name"):
        Cache(root, name)
    made = {path.relative_to(root.parent) for path in walk_paths(root.parent)}
    own = (".", ".c6", ".c6/segments", ".c11", ".c11/lock", ".c11/cache-id")
    assert made == {Path("root", path) for path in own}


def test_invariant_26_tile_source_never_appears_in_file_names(root: Path) -> None:
    """A source is a plain name; still, no path has it in it."""
    cache = Cache(root)
    hostile = TileId(source="etc-passwd", zoom=0, x=0, y=0)
    blob = cache.store.write_tile(hostile, b"x")
    cache.store.flush()
    cache.journal.append([hostile])
    cache.journal.flush()
    cache.close()
    assert blob.location[0] == 1
    assert not [path for path in walk_paths(root) if "passwd" in str(path.relative_to(root))]
