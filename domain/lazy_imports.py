"""Lazy imports: what a command does not use is not imported.

Creating all attrs classes of the product takes ten times as long as starting Python, and a command
needs few of them. Both functions take ``globals()`` and delay the ``from … import …`` statements
of a block; linters and type checkers see ordinary imports.
"""

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any


@contextmanager
def export_lazily(namespace: dict[str, Any]) -> Iterator[None]:
    """Let a package offer names of its modules, and import each when it is first used.

    A name must differ from those of the package's modules: importing a module binds its name.
    """
    homes: dict[str, str] = {}

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        namespace[name] = getattr(import_module(homes[name]), name)
        return namespace[name]

    with _note_imports(namespace, homes):
        yield
    for name in homes:
        del namespace[name]
    namespace["__getattr__"] = import_name
    namespace["__dir__"] = lambda: sorted({*namespace, *homes})


@contextmanager
def import_on_call(namespace: dict[str, Any]) -> Iterator[None]:
    """Let a module that assembles parts import each class and function when it is called.

    Until then the names are bound to placeholders, which annotations can use as well. They are no
    classes: do not derive from them, and do not catch or match them.
    """
    homes: dict[str, str] = {}
    with _note_imports(namespace, homes):
        yield
    namespace.update({name: _Placeholder(home, name) for name, home in homes.items()})


class _Placeholder:
    """A class or function of a module that is not imported yet."""

    def __init__(self, home: str, name: str) -> None:
        self._home, self._name = home, name

    def _load(self) -> Any:
        return getattr(import_module(self._home), self._name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._load()(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a library inspects what it is given
            raise AttributeError(name)
        return getattr(self._load(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._load())

    def __or__(self, other: object) -> "_Placeholder":
        """Return an annotation such as ``Run | None``."""
        return self


@contextmanager
def _note_imports(namespace: dict[str, Any], homes: dict[str, str]) -> Iterator[None]:
    """Note in ``homes`` from which module the block would import each name."""
    import_now = builtins.__import__

    def note_import(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  # the signature of __import__
        locals: Mapping[str, object] | None = None,  # noqa: A002  # as above
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if globals is not namespace:  # by another thread
            return import_now(name, globals, locals, fromlist or (), level)
        homes.update(dict.fromkeys(fromlist or (), name))
        return SimpleNamespace(**dict.fromkeys(fromlist or ()))

    builtins.__import__ = note_import
    try:
        yield
    finally:
        builtins.__import__ = import_now
