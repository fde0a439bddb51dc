"""Figures of the code base, measured and held to their targets."""

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
