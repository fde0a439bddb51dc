"""The wheel, and what it is in an environment of its own."""

import email
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROBE = """
import importlib, pathlib, sys
from tileferry.domain.retry import RetryCategory, POLICY_MATRIX
for layer in ("domain", "application", "adapters", "entrypoints", "migrations"):
    module = importlib.import_module(f"tileferry.{layer}")
    folder = pathlib.Path(module.__file__).parent
    assert folder.is_relative_to(sys.prefix), folder
    assert (folder / "py.typed").exists(), layer
print(POLICY_MATRIX[RetryCategory.NATS_CONNECT].max_attempts)
"""


def run_command(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(  # noqa: S603  # our own commands
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    # A copy, so that building leaves nothing behind in the tree.
    tree = out / "tree"
    files = run_command(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT
    )
    for name in filter(None, files.split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    run_command(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", out, tree, cwd=out,
    )  # fmt: skip
    return next(out.glob("tileferry-*.whl"))


def test_wheel_contains_one_typed_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tileferry"}
    assert "tileferry/migrations/__init__.py" in names
    assert sum(name.endswith("/py.typed") for name in names) == 5
    assert not [name for name in names if name.endswith(("ruff.toml", ".pyc"))]


def test_metadata_lists_dependencies_and_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_bytes(archive.read(name))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *(f'{each}; extra == "{extra}"' for extra in extras for each in extras[extra]),
    ]
    assert sorted(metadata.get_all("Requires-Dist", [])) == sorted(needed)
    assert sorted(metadata.get_all("Provides-Extra", [])) == sorted(extras)
    assert metadata["Requires-Python"] == project["requires-python"]


def test_wheel_installs_in_clean_venv_and_imports(wheel: Path, tmp_path: Path) -> None:
    clean, elsewhere = tmp_path / "clean", tmp_path / "elsewhere"
    venv.create(clean)
    elsewhere.mkdir()
    python = clean / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run_command(*pip, "install", "--quiet", "--no-deps", "--no-compile", wheel, cwd=elsewhere)
    lend_dependencies(clean)
    assert run_command(python, "-c", PROBE, cwd=elsewhere).strip() == "5"
    assert "provider" in run_command(clean / "bin/tileferry", "--help", cwd=elsewhere)
    run_command(*pip, "check", cwd=elsewhere)


def lend_dependencies(environment: Path) -> None:
    """Let an environment import what this one has, but not what this one has in place.

    A folder that a .pth names is searched after the environment's own packages, and the .pth
    files in that folder, the one of an editable install among them, are not read.
    """
    lent = [path for path in sys.path if Path(path).name == "site-packages"]
    assert lent
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(lent), encoding="utf-8")
