"""Scripts of others for tests in a browser, from packages that bring them along."""

from importlib.util import find_spec
from pathlib import Path


def _read(package: str, path: str) -> str:
    found = find_spec(package)  # without importing it
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / path).read_text(encoding="utf-8")


def read_axe() -> str:
    """Return axe-core, which checks the accessibility of a page."""
    return _read("axe_playwright_python", "axe.min.js")


def read_maplibre() -> str:
    """Return MapLibre GL JS."""
    return _read("maplibre", "srcjs/maplibre-gl.js")
