"""Loop devices and mounts: a disk that is logged, and a disk after a power cut."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

DISK = "disk"
"""The name of the logged file."""
TOOLS = ("mkfs.ext4", "losetup", "mount", "umount", "fusermount3")
_WAIT_S = 20.0


def find_missing() -> str | None:
    """Return why power cuts cannot be simulated on this machine; ``None`` if they can."""
    if os.geteuid() != 0:
        return "it must run as root, to mount loop devices"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{missing[0]} is not installed (Debian: fuse3, e2fsprogs, mount)"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not Path(device).exists():
            return f"there is no {device}"
    return None


def run(*command: str | Path) -> str:
    """Run a command and return its output."""
    done = subprocess.run(  # noqa: S603  # fixed commands
        [str(part) for part in command], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise OSError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


@contextmanager
def mount_image(image: Path, mountpoint: Path) -> Iterator[Path]:
    """Mount a file with a file system; it replays its journal, as after a power cut."""
    mountpoint.mkdir(parents=True, exist_ok=True)
    device = run("losetup", "--find", "--show", image)
    try:
        run("mount", "-t", "ext4", device, mountpoint)
        try:
            yield mountpoint
        finally:
            _unmount(mountpoint)
    finally:
        run("losetup", "--detach", device)


@contextmanager
def mount_logged(folder: Path, *, size_mb: int) -> Iterator[Path]:
    """Mount a new file system below ``folder``, and log its blocks to ``folder/log``.

    ``folder/base.img`` is the file system before the first logged event.
    """
    base, fuse, mountpoint = folder / "base.img", folder / "fuse", folder / "mnt"
    for path in (fuse, mountpoint):
        path.mkdir(parents=True)
    with base.open("wb") as file:
        file.truncate(size_mb * 1024 * 1024)
    run(
        *("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=8"),
        *("-E", "lazy_itable_init=0,lazy_journal_init=0", base),
    )
    with ExitStack() as stack:
        command = [sys.executable, "-m", "powerloss.block_log", fuse, base, folder / "log"]
        process = subprocess.Popen([str(part) for part in command])  # noqa: S603  # our own module
        stack.callback(process.wait, _WAIT_S)
        stack.callback(run, "fusermount3", "-u", fuse)
        deadline_s = time.monotonic() + _WAIT_S
        while not (fuse / DISK).exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise OSError("the logged disk did not start")
            time.sleep(0.05)
        with mount_image(fuse / DISK, mountpoint):
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
