"""Partitions in every state that the transitions lead to, for tests of what is made of them."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tileferry.domain.partitions import (
    Partition,
    PartitionKey,
    TerminalityPolicy,
    abandon,
    accept,
    enqueue,
    mark_terminal,
    reject,
    reprocess,
    requeue,
)
from tileferry.domain.runs import RunId
from tileferry.domain.state_machine import Actor

NOW = datetime(2024, 6, 1, 12, tzinfo=UTC)
TERMINALITY = TerminalityPolicy(max_attempts=2)


def pending(key: PartitionKey) -> Partition:
    return enqueue(key, RunId("r1"), actor=Actor.SCHEDULER, now=NOW).after


def success(key: PartitionKey) -> Partition:
    return accept(pending(key), RunId("r1"), actor=Actor.VALIDATOR, now=NOW).after


def failed(key: PartitionKey) -> Partition:
    return reject(pending(key), RunId("r1"), actor=Actor.VALIDATOR, now=NOW, error="bad").after


def requeued(key: PartitionKey) -> Partition:
    return requeue(
        failed(key),
        RunId("r2"),
        actor=Actor.OPERATOR,
        now=NOW,
        terminality=TERMINALITY,
        reason="mended",
    ).after


def used_up(key: PartitionKey) -> Partition:
    return reject(requeued(key), RunId("r2"), actor=Actor.VALIDATOR, now=NOW, error="bad").after


def abandoned(key: PartitionKey) -> Partition:
    return abandon(pending(key), RunId("r1"), actor=Actor.WORKER, now=NOW, error="no key").after


def marked(key: PartitionKey) -> Partition:
    return mark_terminal(failed(key), actor=Actor.OPERATOR, now=NOW, reason="hopeless").after


def reprocessing(key: PartitionKey) -> Partition:
    return reprocess(
        success(key), RunId("r2"), actor=Actor.OPERATOR, now=NOW, reason="better source"
    ).after


def spoilt_reprocessing(key: PartitionKey) -> Partition:
    return abandon(
        reprocessing(key), RunId("r2"), actor=Actor.WORKER, now=NOW, error="no key"
    ).after


STATES: Mapping[str, Callable[[PartitionKey], Partition]] = {
    maker.__name__: maker
    for maker in (
        pending,
        success,
        failed,
        requeued,
        used_up,
        abandoned,
        marked,
        reprocessing,
        spoilt_reprocessing,
    )
}
