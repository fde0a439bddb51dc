"""Where imports are lazy: what the linters cannot see."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("domain", "application", "adapters", "entrypoints")


def find_lazy_names(function: str) -> Iterator[tuple[Path, ast.Module, set[str]]]:
    """Yield each file that calls ``function`` in a ``with``, and the names imported there."""
    for file in (file for layer in LAYERS for file in (ROOT / layer).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        blocks = [
            node
            for node in tree.body
            if isinstance(node, ast.With) and ast.unparse(node.items[0]) == f"{function}(globals())"
        ]
        imports = [one for block in blocks for one in block.body]
        if imports:
            assert all(isinstance(one, ast.ImportFrom) for one in imports), file
            yield file, tree, {name.name for one in imports for name in getattr(one, "names", ())}


def test_lazy_exports_differ_from_names_of_modules() -> None:
    packages = list(find_lazy_names("export_lazily"))
    assert packages
    for file, _, names in packages:
        assert names.isdisjoint({path.stem for path in file.parent.iterdir()}), file


def test_placeholders_are_not_used_as_classes() -> None:
    found = list(find_lazy_names("import_on_call"))
    assert found
    for file, tree, names in found:
        used_as_class: list[ast.AST | None] = []
        for node in ast.walk(tree):
            match node:
                case ast.ExceptHandler():
                    used_as_class.append(node.type)
                case ast.ClassDef():
                    used_as_class += node.bases
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name()]):
                    pass  # a placeholder alone; a union with one would be the placeholder
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass")):
                    used_as_class.append(node.args[1])
                case ast.MatchClass():
                    used_as_class.append(node.cls)
                case _:
                    pass
        used = {
            name.id
            for part in used_as_class
            if part is not None
            for name in ast.walk(part)
            if isinstance(name, ast.Name)
        }
        assert names.isdisjoint(used), file
