"""An installation that a program opens, uses and closes."""

from enum import Enum, auto
from types import TracebackType
from typing import Self

from attrs import Attribute, define, field

from tileferry.adapters.postgres import schema_status, upgrade
from tileferry.application import RetryManager
from tileferry.application.ports.progress import ProgressEvent, ProgressListener
from tileferry.application.transfers.progress import ProgressEvents
from tileferry.domain import checks
from tileferry.domain.errors import InvalidValueError
from tileferry.entrypoints.config import Config, load_config
from tileferry.entrypoints.container import Container


def unheard(event: ProgressEvent, /) -> None:
    """Listen for nobody."""


def _loaded(instance: object, attribute: "Attribute[Config]", value: object) -> None:  # noqa: ARG001  # as attrs calls it
    if not isinstance(value, Config):
        raise InvalidValueError(
            field="config",
            value=type(value).__name__,
            problem="must be a Config",
            remedy="load a file by load_config(Path(...))",
        )


class _State(Enum):
    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


@define
class Installation:
    """A configuration, and what was opened for it."""

    config: Config = field(factory=load_config, validator=_loaded)
    listener: ProgressListener = field(default=unheard, kw_only=True)
    """Is told what goes on."""
    name: str = field(default="embedder", kw_only=True, validator=checks.name)
    """Who submits, and who works, for the audit log and for the queue."""
    _container: Container = field(init=False, repr=False)
    _state: _State = field(default=_State.NEW, init=False, repr=False)

    @_container.default
    def _assembled(self) -> Container:
        return Container(config=self.config)

    def open(self) -> Self:
        """Begin to use it; whoever cannot have a ``with`` block calls ``close`` at the end."""
        if self._state is not _State.NEW:
            raise self._refusal("is closed" if self._state is _State.CLOSED else "is open already")
        try:
            trail = self._container.audit_trail()
        except BaseException:
            self._container.shutdown_resources()
            raise
        trail.sinks = [ProgressEvents(self.listener), *trail.sinks]
        self._state = _State.OPEN
        return self

    def close(self) -> None:
        """Close what was opened. From then on it cannot be used; closing it again is harmless."""
        was_open, self._state = self._state is _State.OPEN, _State.CLOSED
        if was_open:
            self._container.shutdown_resources()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def upgrade_database(self) -> None:
        """Bring the database to what this version needs. Running it again is harmless."""
        upgrade(self._parts().database())

    @property
    def retry_manager(self) -> RetryManager:
        """Retries with the configured policies, durable idempotency keys and the audit log."""
        manager: RetryManager = self._parts().retry_manager()
        return manager

    def _parts(self) -> Container:
        """Return what it is made of, while it is open."""
        if self._state is not _State.OPEN:
            raise self._refusal("is closed" if self._state is _State.CLOSED else "is not open yet")
        return self._container

    def _current(self) -> Container:
        """Return the same, over a database that this version can work with."""
        container = self._parts()
        schema_status(container.database()).check()
        return container

    def _refusal(self, problem: str) -> InvalidValueError:
        return InvalidValueError(
            field=type(self).__name__,
            value=None,
            problem=problem,
            remedy="use it inside of one with block, or between open() and close(); make a new "
            "one for the next",
        )
