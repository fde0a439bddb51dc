"""The parts of an installation: when they are built, and when they are closed."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from attrs import Attribute, define, field, frozen

from tileferry.domain.errors import InvalidStateError, InvalidValueError
from tileferry.domain.lazy_imports import import_on_call
from tileferry.entrypoints.config import Config, load_config

if TYPE_CHECKING:
    from rich.console import Console

    from tileferry.entrypoints.metrics import Metrics

with import_on_call(globals()):
    from tileferry.adapters.filesystem import (
        has_outboxes,
    )
    from tileferry.adapters.postgres import (
        get_schema_status,
    )
    from tileferry.adapters.system import SystemClock
    from tileferry.application.ports import (
        Clock,
    )
    from tileferry.application.ports.progress import NULL_LISTENER, ProgressListener
    from tileferry.entrypoints.container import Container
    from tileferry.entrypoints.logs import log_to
    from tileferry.entrypoints.reading import ReadingParts


def _check_config(instance: object, attribute: "Attribute[Config]", value: object) -> None:  # noqa: ARG001  # signature of attrs validators
    if not isinstance(value, Config):
        raise InvalidValueError(
            field="config",
            value=type(value).__name__,
            problem="must be a Config",
            remedy="load a file with load_config(Path(...))",
        )


@frozen
class _OneAtATime:
    """The parts of a container. They are built on first use, and its library takes no lock."""

    container: Container
    lock: threading.RLock

    def __getattr__(self, name: str) -> Callable[..., Any]:
        build = getattr(self.container, name)

        def build_alone(*arguments: Any, **named: Any) -> Any:
            with self.lock:
                return build(*arguments, **named)

        return build_alone


class _State(Enum):
    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


@define
class InstallationParts:
    """The life of an installation: opened once, closed once, and its parts built on first use."""

    config: Config = field(factory=load_config, validator=_check_config)
    listener: ProgressListener = field(default=NULL_LISTENER, kw_only=True)
    """Receives the progress of all work as events."""
    clock: Clock = field(factory=SystemClock, kw_only=True)
    """Used for every wait."""
    in_run: bool = field(default=False, kw_only=True)
    """Whether calls belong to queued runs: then long waits are left to the queue."""
    metrics: "Metrics | None" = field(default=None, kw_only=True)
    """The metrics of this process."""
    log_console: "Console | None" = field(default=None, kw_only=True)
    """Shows warnings while the configured log file is written; without it, no logging is set up."""
    _reading: ReadingParts = field(init=False, repr=False)
    _built_container: Container | None = field(default=None, init=False, repr=False)
    _building: threading.RLock = field(factory=threading.RLock, init=False, repr=False)
    _resources: ExitStack = field(factory=ExitStack, init=False, repr=False)
    _is_schema_checked: bool = field(default=False, init=False, repr=False)
    _has_delivered: bool = field(default=False, init=False, repr=False)
    _state: _State = field(default=_State.NEW, init=False, repr=False)

    @_reading.default
    def _build_reading(self) -> ReadingParts:
        return ReadingParts(self.config, self.clock, self.listener)

    @property
    def _container(self) -> Container:
        with self._building:
            if self._built_container is None:
                self._built_container = Container(
                    config=self.config,
                    clock=self.clock,
                    listener=self.listener,
                    in_run=self.in_run,
                    metrics=self.metrics,
                    reading=self._reading,
                )
            return self._built_container

    def open(self) -> Self:
        """Open it; without a ``with`` block, call ``close`` at the end."""
        if self._state is not _State.NEW:
            raise self._build_state_error(
                "is closed" if self._state is _State.CLOSED else "is open already"
            )
        if self.log_console is not None:
            self._resources.enter_context(log_to(self.config.log, self.log_console))
        self._resources.callback(self._reading.close)
        self._resources.callback(self._shut_down_container)
        self._state = _State.OPEN
        return self

    def close(self) -> None:
        """Close everything that was opened, permanently; closing twice is harmless."""
        self._state = _State.CLOSED
        self._resources.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _opened(self) -> Container:
        """The container; it builds its parts for one thread at a time."""
        self._require_open()
        return cast("Container", _OneAtATime(self._container, self._building))

    @property
    def _opened_reading(self) -> ReadingParts:
        self._require_open()
        return self._reading

    @property
    def _checked_reading(self) -> ReadingParts:
        """The parts that read, after checking that the schema is current."""
        reading = self._opened_reading
        with self._building:
            if not self._is_schema_checked:
                get_schema_status(reading.database).check()
                self._is_schema_checked = True
                self._deliver_left_events()
        return reading

    @property
    def _checked(self) -> Container:
        """The container, after checking that the schema is current."""
        _ = self._checked_reading
        return self._opened

    def _deliver_left_events(self) -> None:
        """Deliver audit events that earlier processes left in an outbox."""
        if not self._has_delivered and has_outboxes(self.config.c11.cache_root):
            self._has_delivered = True
            self._container.audit_trail().deliver()

    def _shut_down_container(self) -> None:
        """Try once more to deliver events that wait, if this process has written any, and close."""
        container = self._built_container
        if container is None:
            return
        try:
            if container.local_sinks.initialized:
                container.audit_trail().deliver(at_once=True)
        finally:
            container.shutdown_resources()

    def _require_open(self) -> None:
        if self._state is not _State.OPEN:
            raise self._build_state_error(
                "is closed" if self._state is _State.CLOSED else "is not open yet"
            )

    def _build_state_error(self, problem: str) -> InvalidStateError:
        return InvalidStateError(
            subject=type(self).__name__,
            problem=problem,
            remedy="use it in one `with` block, or between open() and close(), and create a new "
            "one to open again",
        )
