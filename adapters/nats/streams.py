"""What a stream must be before anything that counts goes into it."""

import re
from collections.abc import Callable, Coroutine, Iterator
from logging import Logger
from typing import TYPE_CHECKING, Any

from nats.js import errors as js
from nats.js.api import DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig

from tileferry.adapters.nats.errors import NO_STREAM
from tileferry.adapters.nats.session import Session
from tileferry.domain.checks import field_name
from tileferry.domain.errors import InvalidValueError, MessagingError

if TYPE_CHECKING:
    from attrs import Attribute

REPLICAS_ENOUGH = 3
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SUBJECT = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}", re.ASCII)


def stream_name(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Refuse what cannot be a part of a subject: the name of a stream or a bucket."""
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise InvalidValueError(
            field=field_name(instance, attribute),
            value=value,
            problem="cannot name a stream or a bucket",
            remedy="use 1 to 64 of A-Z a-z 0-9 _ -",
        )


def subject_name(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    """Refuse what cannot be the beginning of subjects."""
    if not (isinstance(value, str) and _SUBJECT.fullmatch(value)):
        raise InvalidValueError(
            field=field_name(instance, attribute),
            value=value,
            problem="cannot be a subject",
            remedy="use up to 8 names of A-Z a-z 0-9 _ - with dots between",
        )


async def found_or_made(
    session: Session, name: str, make: Callable[[], Coroutine[Any, Any, object]]
) -> StreamConfig:
    """Return the settings that a stream has; others than asked for, if it was there before."""
    try:
        return (await session.js.stream_info(name)).config
    except js.NotFoundError as error:
        if error.err_code != NO_STREAM:
            raise
    await make()
    return (await session.js.stream_info(name)).config


def check_promises(
    config: StreamConfig, *, what: str, accept_weak_durability: bool, logger: Logger
) -> None:
    """Refuse a stream that loses what it has taken; warn of one that a power cut may shorten."""
    for problem in _broken_promises(config):
        raise unsuitable(what, problem)
    replicas = config.num_replicas or 1
    if replicas < REPLICAS_ENOUGH and not accept_weak_durability:
        logger.warning(
            "%s has %d replica(s), and a NATS server by default syncs to the disk every two "
            "minutes: a power cut may undo what was confirmed; use %d replicas, or set "
            "sync_interval: always on the server and accept_weak_durability=True here",
            what,
            replicas,
            REPLICAS_ENOUGH,
            extra={"kind": "nats.weak_durability", "stream": config.name, "replicas": replicas},
        )


def unsuitable(what: str, problem: str) -> MessagingError:
    """Return the error of a stream that was made for something else."""
    return MessagingError(
        problem=f"{what} {problem}", remedy="use another name, or change its settings"
    )


def _broken_promises(config: StreamConfig) -> Iterator[str]:
    if config.storage == StorageType.MEMORY:
        yield "is kept in memory only, and would be gone with the server"
    if config.persist_mode == PersistMode.ASYNC:
        yield "confirms what is not written yet (persist_mode)"
    if config.max_age:
        yield f"drops everything after {config.max_age:g} s (max_age)"
    if config.retention != RetentionPolicy.LIMITS:
        yield "drops what somebody has read (retention)"
    limits = (config.max_msgs or -1, config.max_bytes or -1)
    if config.discard != DiscardPolicy.NEW and max(limits) > 0:
        yield "drops what is old to make room (discard)"
    if config.sealed or config.mirror is not None:
        yield "cannot be written to"
