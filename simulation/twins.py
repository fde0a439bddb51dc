"""Twins: a memory adapter and a real one behind one port, which must answer every call alike.

The history goes on with the answer of the memory adapter. As the real one gave the same answer to
every call so far, a history over the real one alone would be the same.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache, partial
from pathlib import PurePath
from types import TracebackType
from typing import Any, Protocol

from attrs import define, evolve, field

from tileferry.adapters.memory import MemoryTileStore
from tileferry.domain.errors import CacheLockError, StorageError
from tileferry.domain.tiles import BlobLocation, BlobRef, TileSet


class RealSide(Protocol):
    """State that the real adapters of a history share."""

    def follow_time(self) -> None:
        """Set the time of the real stores to that of the simulation."""

    def report(self, problem: str) -> None:
        """Report what differs; this ends the history."""


@define(eq=False)
class Twin:
    """Two adapters of one port. ``create_twin`` adds the methods of the port."""

    _name: str
    _model: Any
    _real: Any
    _side: RealSide
    _alone: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Methods that are called on the memory adapter only."""

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call both; return the answer, or raise the error, that they have in common."""
        args = tuple(list(arg) if isinstance(arg, Iterator) else arg for arg in args)
        if name in self._alone:
            return getattr(self._model, name)(*args, **kwargs)
        copies = tuple(deepcopy(arg) if isinstance(arg, TileSet) else arg for arg in args)
        place = f"{self._name}.{name}"
        answer = self._call_both(
            place,
            partial(getattr(self._model, name), *args, **kwargs),
            partial(getattr(self._real, name), *copies, **kwargs),
        )
        for one, other in zip(args, copies, strict=True):
            if isinstance(one, TileSet):
                self._join(place, bytes(one._bits), bytes(other._bits))
        return answer

    def _call_both(self, place: str, model: Callable[[], Any], real: Callable[[], Any]) -> Any:
        answer = _attempt(model)
        self._side.follow_time()
        return self._settle(place, answer, _attempt(real))

    def _read(self, name: str) -> Any:
        """Return the attribute that both have in common."""
        self._side.follow_time()
        place = f"{self._name}.{name}"
        return self._join(place, getattr(self._model, name), getattr(self._real, name))

    def _settle(self, place: str, answer: "_Answer", real_answer: "_Answer") -> Any:
        if _identify(answer.error) != _identify(real_answer.error):
            self._side.report(f"{place}: memory {answer}, real {real_answer}")
        if answer.error is not None:
            raise answer.error
        return self._join(place, answer.value, real_answer.value)

    def _join(self, place: str, value: Any, real_value: Any) -> Any:
        if is_memory_adapter(value):
            return create_twin(Twin(place, value, real_value, self._side))
        if hasattr(value, "__enter__"):
            return TwinContext(self, place, value, real_value)
        if callable(value):
            return lambda: self._call_both(place, value, real_value)
        if isinstance(value, BlobRef) and isinstance(self._model, MemoryTileStore):
            value = _move_blob(self._model, value, real_value.location)
        if place.endswith(".write_tiles"):
            blobs = {blob.location: blob for blob in self._model._unflushed}
            for location, moved in zip(value, real_value, strict=True):
                _move_blob(self._model, blobs[location], moved)
            value = real_value
        known, real = _simplify(value), _simplify(real_value)
        if known != real:
            self._side.report("{}: memory {!r}, real {!r}".format(*_narrow(place, known, real)))
        return value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._join(self._name, list(self._model), list(self._real)))


@define(eq=False)
class TwinContext:
    """Two context managers, such as transactions."""

    twin: Twin
    place: str
    model: Any
    real: Any

    def __enter__(self) -> Any:
        return self.twin._call_both(self.place, self.model.__enter__, self.real.__enter__)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        return self.twin._call_both(
            f"{self.place}.end",
            partial(self.model.__exit__, kind, error, trace),
            partial(self.real.__exit__, kind, error, trace),
        )


@define
class _Answer:
    value: Any = None
    error: Exception | None = None

    def __str__(self) -> str:
        return repr(self.value if self.error is None else self.error)


def is_memory_adapter(value: object) -> bool:
    return any(
        kind.__module__.startswith("tileferry.adapters.memory") for kind in type(value).__mro__
    )


def _attempt(ask: Callable[[], Any]) -> _Answer:
    try:
        value = ask()
        return _Answer(list(value) if isinstance(value, Iterator) else value)
    except Exception as error:  # noqa: BLE001  # raised again, if both have it
        return _Answer(error=error)


def _identify(error: Exception | None) -> object:
    """Return what errors have in common; those of a disk name their files."""
    is_of_disk = isinstance(error, StorageError | CacheLockError)
    return type(error), None if is_of_disk else str(error)


def _simplify(value: Any) -> Any:
    """Return a value without what may differ: the type of a collection, a path, rounding."""
    match value:
        case PurePath():
            return PurePath()
        case float():
            return round(value, 5)
        case list() | tuple():
            return [_simplify(one) for one in value]
        case Mapping():
            return {key: _simplify(one) for key, one in value.items()}
        case _:
            return value


def _narrow(place: str, known: Any, real: Any) -> tuple[str, Any, Any]:
    """Return the first part that differs."""
    keys: Any = ()
    if isinstance(known, list) and isinstance(real, list) and len(known) == len(real):
        keys = range(len(known))
    elif isinstance(known, dict) and isinstance(real, dict) and known.keys() == real.keys():
        keys = known
    for key in keys:
        if known[key] != real[key]:
            return _narrow(f"{place}[{key}]", known[key], real[key])
    return place, known, real


def _move_blob(store: MemoryTileStore, blob: BlobRef, location: BlobLocation) -> BlobRef:
    """Make the memory store use the locations of the bytes on the disk."""
    moved = evolve(blob, location=location)
    store._contents[moved] = store._contents.pop(blob)
    store._unflushed[moved] = store._unflushed.pop(blob)
    return moved


def create_twin(plain: Twin) -> Any:
    """Return a twin with the methods of its memory adapter."""
    kind: Any = type(plain._model)
    return create_class(kind)(
        plain._name, plain._model, plain._real, plain._side, alone=plain._alone
    )


@cache
def create_class(kind: Any) -> type[Twin]:
    """Return a class whose attributes look like those of an adapter."""
    body = {name: _mirror(kind, name) for name in dir(kind) if not name.startswith("_")}
    return type(f"Twin{kind.__name__}", (Twin,), body)


def _mirror(kind: type, name: str) -> Any:
    found = inspect.getattr_static(kind, name)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not inspect.isfunction(found):
        return property(lambda self: self._read(name))

    def call(self: Twin, *args: Any, **kwargs: Any) -> Any:
        return self._call(name, args, kwargs)

    if inspect.isgeneratorfunction(getattr(found, "__wrapped__", None)):
        call.__wrapped__ = found.__wrapped__  # type: ignore[attr-defined]  # it opens a context
    return call
