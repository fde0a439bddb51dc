"""Loop devices and mounts: a disk that is logged, and a disk after a power cut."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path

DISK = "disk"
"""The name of the logged file."""
TOOLS = ("mkfs.ext4", "e2fsck", "losetup", "mount", "umount", "fusermount3")
DEVICES = (Path("/dev/fuse"), Path("/dev/loop-control"))
_WAIT_S = 20.0
_REPAIRS_MAX = 4


class FileSystem(StrEnum):
    """What the disk is formatted with.

    Each commit of ext4's journal makes all earlier changes of names durable. Without a journal, a
    new name of a file is durable only after an fsync of its folder, as POSIX has it, so that a
    missing one shows. Postgres, which does not sync the folders of its tables, is on a second disk
    then, with a journal.
    """

    WITHOUT_JOURNAL = "nojournal"
    WITH_JOURNAL = "ext4"

    @property
    def has_journal(self) -> bool:
        """Whether the file system is sound after any subset of the unflushed writes."""
        return self is FileSystem.WITH_JOURNAL


def find_missing() -> str | None:
    """Return why power cuts cannot be simulated on this machine; ``None`` if they can."""
    if os.geteuid() != 0:
        return "it must run as root, to mount loop devices"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{missing[0]} is not installed (Debian: fuse3, e2fsprogs, mount)"
    for device in DEVICES:
        try:
            device.open("rb").close()
        except OSError as error:
            return f"cannot open {device}: {error.strerror}"
    try:
        import mfusepy  # noqa: F401, PLC0415  # loads the library
    except OSError as error:
        return f"libfuse is not installed (Debian: fuse3): {error}"
    return None


def _repair(device: str) -> None:
    """Correct a file system without a journal; one repair may show the need of another."""
    for _ in range(_REPAIRS_MAX):
        with suppress(OSError):  # it fails after it corrected something
            run("e2fsck", "-f", "-y", device)
            return
    raise OSError(f"e2fsck cannot repair {device}")


def run(*command: str | Path) -> str:
    """Run a command and return its output."""
    done = subprocess.run(  # noqa: S603  # fixed commands
        [str(part) for part in command], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise OSError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


@contextmanager
def mount_image(image: Path, mountpoint: Path, kind: FileSystem) -> Iterator[Path]:
    """Mount a file with a file system; it is repaired as at boot after a power cut."""
    mountpoint.mkdir(parents=True, exist_ok=True)
    device = run("losetup", "--find", "--show", image)
    try:
        if not kind.has_journal:
            _repair(device)
            run("mount", "-t", "ext4", device, mountpoint)
        else:  # it replays its journal; commits are left to the product
            mount = ("mount", "-t", "ext4", "-o", "commit=300", device, mountpoint)
            try:
                run(*mount)
            except OSError:  # the superblock has two sectors, and one of them was lost
                _repair(device)
                run(*mount)
        try:
            yield mountpoint
        finally:
            _unmount(mountpoint)
    finally:
        run("losetup", "--detach", device)


@contextmanager
def mount_logged(
    folder: Path, mountpoint: Path, kind: FileSystem, *, size_mb: int
) -> Iterator[Path]:
    """Mount a new file system, and log its blocks to ``folder/log``.

    ``folder/base.img`` is the file system before the first logged event.
    """
    base, fuse = folder / "base.img", folder / "fuse"
    fuse.mkdir(parents=True)
    with base.open("wb") as file:
        file.truncate(size_mb * 1024 * 1024)
    journal = ("-J", "size=8") if kind.has_journal else ("-O", "^has_journal")
    run(
        *("mkfs.ext4", "-q", "-F", "-b", "4096", *journal),
        *("-E", "lazy_itable_init=0,lazy_journal_init=0", base),
    )
    with ExitStack() as stack:
        command = [sys.executable, "-m", "powerloss.block_log", fuse, base, folder / "log"]
        process = subprocess.Popen([str(part) for part in command])  # noqa: S603  # our own module
        stack.callback(process.wait, _WAIT_S)
        deadline_s = time.monotonic() + _WAIT_S
        while not (fuse / DISK).exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise OSError("the logged disk did not start")
            time.sleep(0.05)
        stack.callback(run, "fusermount3", "-u", fuse)
        with mount_image(fuse / DISK, mountpoint, kind):
            mountpoint.chmod(0o755)
            yield mountpoint


def _unmount(mountpoint: Path) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while True:
        try:
            run("umount", mountpoint)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)  # a server may still be closing its files
        else:
            return
