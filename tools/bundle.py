"""Builds a bundle that installs without a network, and tests it; see ``make bundle``.

The bundle is an archive with the wheel of tileferry, the wheels of every locked package that it
needs on this platform, their hashes, and ``install.sh``. It is then installed and run in a network
namespace without any interface.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "bundle"
DIST = ROOT / "dist"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")


def run(*command: str | Path, **options: object) -> str:
    """Run a command and return its output; exit with its message if it fails."""
    done = subprocess.run(  # noqa: S603  # commands of our own
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def select_locked() -> str:
    """Return the entries of the lock that the product or one of its extras needs."""
    components = json.loads((ROOT / "sbom.cdx.json").read_text(encoding="utf-8"))["components"]
    shipped = {normalize(one["name"]) for one in components if one["scope"] != "excluded"}
    chosen, keep = [], False
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            found = PACKAGE.match(line)
            keep = found is not None and normalize(found[1]) in shipped
        if keep:
            chosen.append(line)
    return "\n".join(chosen) + "\n"


def build_wheels(wheels: Path) -> Path:
    """Build the product's wheel and fetch the locked packages; return the product's wheel."""
    tree = BUILD / "tree"  # a copy, so that building leaves nothing behind
    for name in filter(None, run("git", "ls-files", "-z", cwd=ROOT).split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels)
    run(*PIP, "wheel", *options, tree)
    (own,) = wheels.glob("tileferry-*.whl")
    locked = BUILD / "locked.txt"
    locked.write_text(select_locked(), encoding="utf-8")
    run(*PIP, "wheel", *options, "--require-hashes", "-r", locked)
    return own


def write_requirements(folder: Path) -> None:
    """Write the requirements with the hash of each wheel, since some are built here."""
    lines = []
    for wheel in sorted((folder / "wheels").glob("*.whl")):
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"./wheels/{wheel.name} --hash=sha256:{digest}\n")
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")


INSTALL = """\
#!/bin/sh
# Installs tileferry from this folder, without a network: ./install.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${1:-"$HOME/.local/share/tileferry/venv"}
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.version_info[:2] == @PYTHON@ or sys.exit(
    "this bundle needs Python @VERSION@, this is " + sys.version.split()[0] + "; set PYTHON")'
"$python" -m venv "$target"
target=$(cd "$target" && pwd)
cd "$here"
sha256sum --quiet --check SHA256SUMS
PIP_CONFIG_FILE=/dev/null "$target/bin/python" -m pip install --quiet --isolated \\
    --disable-pip-version-check --no-deps --require-hashes -r requirements.txt
echo "Installed $("$target/bin/tileferry" --version): $target/bin/tileferry"
"""


def write_bundle(folder: Path) -> None:
    """Write everything else that belongs to the bundle, and the checksums of all files."""
    version = sys.version_info[:2]
    script = INSTALL.replace("@PYTHON@", str(tuple(version)))
    script = script.replace("@VERSION@", ".".join(map(str, version)))
    installer = folder / "install.sh"
    installer.write_text(script, encoding="utf-8")
    installer.chmod(0o755)
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "sbom.cdx.json", "_docs/licences.md"):
        shutil.copyfile(ROOT / name, folder / Path(name).name)
    shutil.copytree(
        ROOT / "deploy", folder / "deploy", ignore=shutil.ignore_patterns("__pycache__")
    )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in files
    ]
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def prove(archive: Path) -> None:
    """Install the archive and run it, without a network."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
        (folder,) = place.iterdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment = {**kept, "HOME": str(place), "PYTHON": sys.executable}
        alone = ("unshare", "--map-root-user", "--net") if os.geteuid() else ("unshare", "--net")
        check = (
            "! python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 1)' "
            '2>/dev/null && ./install.sh "$HOME/venv" && "$HOME/venv/bin/tileferry" db upgrade'
            ' && "$HOME/venv/bin/tileferry" cache verify'
        )
        print(run(*alone, "sh", "-c", check, cwd=folder, env=environment), end="")


def main() -> None:
    if BUILD.exists():
        shutil.rmtree(BUILD)
    BUILD.mkdir(parents=True)
    DIST.mkdir(exist_ok=True)
    draft = BUILD / "draft"
    (draft / "wheels").mkdir(parents=True)
    own = build_wheels(draft / "wheels")
    write_requirements(draft)
    write_bundle(draft)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}-{platform}"
    name = f"tileferry-{own.name.split('-')[1]}-{tag}"
    archive = DIST / f"{name}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(draft, arcname=name)
    prove(archive)
    size_mb = archive.stat().st_size / 1e6
    count = len(list((draft / "wheels").iterdir()))
    print(f"{archive.relative_to(ROOT)}: {count} wheels, {size_mb:.0f} MB, installed offline")


if __name__ == "__main__":
    main()
