"""Lazy imports: names are imported when they are first used, or called."""

import builtins
import json
from typing import Any

import pytest

from tileferry.domain.lazy_imports import export_lazily, import_on_call


def execute(source: str, wrapper: Any, name: str = "some.package") -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": name, "lazily": wrapper}
    lines = "\n".join(f"    {line}" for line in source.splitlines())
    exec(f"with lazily(globals()):\n{lines}", namespace)  # noqa: S102  # our own text
    return namespace


def test_exported_name_is_imported_on_first_use() -> None:
    namespace = execute("from json import dumps, loads", export_lazily)
    assert "dumps" not in namespace
    assert namespace["__getattr__"]("dumps") is json.dumps
    assert namespace["dumps"] is json.dumps
    assert "loads" not in namespace
    assert {"dumps", "loads"} <= set(namespace["__dir__"]())


def test_unknown_name_of_package_is_an_attribute_error() -> None:
    namespace = execute("from json import dumps", export_lazily)
    with pytest.raises(AttributeError, match=r"module 'some\.package' has no attribute 'dump'"):
        namespace["__getattr__"]("dump")


def test_package_that_exports_lazily_offers_all_its_names() -> None:
    from tileferry.domain import tiles  # noqa: PLC0415  # what is tested

    assert set(tiles.__all__) <= set(dir(tiles))
    assert all(getattr(tiles, name) is not None for name in tiles.__all__)


def test_placeholder_is_imported_when_it_is_called() -> None:
    namespace = execute("from no_such_module import part\nfrom json import dumps", import_on_call)
    assert namespace["dumps"]([1]) == "[1]"
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        namespace["part"]()


def test_placeholder_offers_public_attributes_only() -> None:
    namespace = execute("from json import JSONDecoder", import_on_call)
    assert namespace["JSONDecoder"].raw_decode is json.JSONDecoder.raw_decode
    assert not hasattr(namespace["JSONDecoder"], "_private")


def test_instances_are_recognized_by_their_placeholder() -> None:
    part = execute("from json import JSONDecoder", import_on_call)["JSONDecoder"]
    assert isinstance(json.JSONDecoder(), part)
    assert not isinstance("text", part)


def test_placeholder_can_be_part_of_an_annotation() -> None:
    part = execute("from json import JSONDecoder", import_on_call)["JSONDecoder"]
    assert (part | None) is part


def test_other_modules_import_as_usual_meanwhile() -> None:
    namespace: dict[str, Any] = {"__name__": "some.package"}
    before = builtins.__import__
    with export_lazily(namespace):
        from json import dumps  # noqa: PLC0415  # a module other than the package
    assert dumps is json.dumps
    assert builtins.__import__ is before


def test_import_hook_is_removed_after_an_error() -> None:
    before = builtins.__import__
    with pytest.raises(ZeroDivisionError):
        execute("1 / 0", export_lazily)
    assert builtins.__import__ is before
