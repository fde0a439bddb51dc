"""Figures of the code base, measured and held to their targets."""

import ast
import re
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
LAYERS = ("domain", "application", "adapters", "entrypoints")


@frozen
class Share:
    """How many of all have a property, and which have not."""

    count: int
    total: int
    others: tuple[str, ...]

    @property
    def percent(self) -> float:
        return 100 * self.count / self.total


def measure_findable_tests() -> Share:
    """Count the test modules whose path follows from the module that they test.

    ``domain/tiles/area.py`` has its tests in ``tests/domain/tiles/test_area.py`` and in
    ``test_area_<aspect>.py`` beside it; a package is tested as a module of its name.
    """
    modules = [
        path
        for layer in LAYERS
        for path in sorted((ROOT / "tests" / layer).rglob("test_*.py"))
        if "__pycache__" not in path.parts
    ]
    others = tuple(str(path.relative_to(ROOT)) for path in modules if not _is_findable(path))
    return Share(len(modules) - len(others), len(modules), others)


def _is_findable(test: Path) -> bool:
    folder = ROOT / test.parent.relative_to(ROOT / "tests")
    words = test.stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    return any(
        (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()
        for name in names
    )


def test_tests_are_findable_from_the_module_they_test() -> None:
    findable = measure_findable_tests()
    assert findable.percent > 80, findable.others


CRITERION = re.compile(r"def test_(spec\d+)((?:_(?:ac|s)\d+)+)_")
"""An acceptance criterion, or a section of a spec that has none, in the name of a test."""


def list_levels_by_criterion() -> dict[str, set[str]]:
    """Return the folders below ``tests`` in which each acceptance criterion is tested."""
    levels: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for spec, criteria in CRITERION.findall(path.read_text(encoding="utf-8")):
            for criterion in criteria.strip("_").split("_"):
                level = path.relative_to(ROOT / "tests").parts[0]
                levels.setdefault(f"{spec}_{criterion}", set()).add(level)
    return levels


def test_each_acceptance_criterion_is_tested_at_one_level() -> None:
    levels = list_levels_by_criterion()
    assert {name: found for name, found in levels.items() if len(found) > 1} == {}
    assert {f"spec1_ac{number}" for number in range(1, 14)} <= set(levels)
    assert {f"spec5_ac{number}" for number in range(1, 13)} <= set(levels)


SHAPE = re.compile(r"^\| `(\w+)` \| `([\w/]+\.py)` \|", re.MULTILINE)


def list_tile_shapes() -> list[tuple[str, str]]:
    """Return the classes, with their files, that the architecture lists for a downloaded tile."""
    text = (ROOT / "_docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("### Shapes of a tile\n")[2].partition("\n## ")[0]
    return SHAPE.findall(section)


def test_tile_goes_through_at_most_six_shapes() -> None:
    shapes = list_tile_shapes()
    assert 0 < len(shapes) <= 6, shapes
    for name, file in shapes:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^class {name}\b", source, re.MULTILINE), (name, file)


def count_protocol_methods() -> dict[str, int]:
    """Return how many methods each protocol of the ports declares itself."""
    return {
        node.name: sum(
            isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body
        )
        for path in sorted((ROOT / "application" / "ports").glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
    }


def test_ports_are_small() -> None:
    counts = count_protocol_methods()
    assert {"WorkUnit", "WorkReader", "TileMetadataStore"} <= set(counts)
    assert {name: count for name, count in counts.items() if count > 8} == {}
