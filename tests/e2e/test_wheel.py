"""The wheel, installed where nothing else is."""

import subprocess
import sys
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


def run(*command: str | Path, cwd: Path) -> str:
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
    files = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, files.split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--wheel-dir", out, tree, cwd=out,
    )  # fmt: skip
    return next(out.glob("tileferry-*.whl"))


def test_the_wheel_holds_one_package_with_its_types_and_nothing_global(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tileferry"}
    assert "tileferry/migrations/__init__.py" in names
    assert sum(name.endswith("/py.typed") for name in names) == 5
    assert not [name for name in names if name.endswith(("ruff.toml", ".pyc"))]


@pytest.mark.timeout(300)
def test_it_installs_in_a_clean_environment_and_imports_from_anywhere(
    wheel: Path, tmp_path: Path
) -> None:
    clean = tmp_path / "clean"
    venv.create(clean, with_pip=True)
    python = clean / "bin/python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run(python, "-c", PROBE, cwd=elsewhere).strip() == "5"
    run(python, "-m", "pip", "check", cwd=elsewhere)
