"""A process that does a thing once under its key, until somebody kills it."""

import logging
import os
import random
import secrets
import time
from multiprocessing.connection import Connection
from pathlib import Path

from attrs import frozen

from support import jetstream_idempotency
from tileferry.adapters.postgres import Database, PostgresAuditLog, PostgresIdempotencyStore
from tileferry.adapters.system import SystemClock
from tileferry.application import AuditTrail, IdempotencyManager
from tileferry.application.audit import CallContext
from tileferry.application.ports.idempotency import IdempotencyStore
from tileferry.application.retries.idempotent_call import IdempotentCall
from tileferry.domain.canonical import JsonValue

PAUSE_S_MAX = 0.02
"""How long the operation takes before its effect, and after it."""


@frozen(kw_only=True)
class CallerPlan:
    """What a caller is told."""

    kind: str
    address: str
    key: str
    name: str
    """Whose claim it is; no other caller has this name."""
    effects: Path
    results: Path
    seed: int


def open_store(kind: str, address: str) -> IdempotencyStore:
    """Open a store, as each process does for itself."""
    if kind == "jetstream":
        url, bucket = address.split()
        return jetstream_idempotency.open_jetstream_store(url, bucket)
    assert kind == "postgres"
    database = Database.from_url(address)
    log = PostgresAuditLog(database=database)
    return PostgresIdempotencyStore(database=database, audit_sink=log)


def create_caller_manager(store: IdempotencyStore, name: str) -> IdempotencyManager:
    """Return a manager whose leases outlast any pause of this machine."""
    sinks = [] if store.audit_sink is None else [store.audit_sink]
    return IdempotencyManager(
        store=store,
        clock=SystemClock(),
        new_id=lambda: f"{name}:{secrets.token_hex(4)}",
        audit=AuditTrail(logger=logging.getLogger("tests"), sinks=sinks, fail_closed=True),
    )


def create_call(key: str) -> IdempotentCall:
    return IdempotentCall(
        key=key,
        context=CallContext(category="RETRY_API_REQUEST", operation="append a line"),
        result_type=JsonValue,
    )


def run_caller(plan: CallerPlan, line: Connection) -> None:
    """Append a line once under the key, when ``line`` says so, and note the result."""
    chance = random.Random(plan.seed)  # noqa: S311  # a repeatable test, not a secret
    store = open_store(plan.kind, plan.address)
    store.find(plan.key)  # connects
    line.send("ready")
    line.recv()

    def append() -> str:
        effect = f"{plan.name}:{secrets.token_hex(4)}"
        time.sleep(chance.uniform(0, PAUSE_S_MAX))
        target = os.open(plan.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(target, f"{effect}\n".encode())
        os.close(target)
        time.sleep(chance.uniform(0, PAUSE_S_MAX))
        return effect

    result = create_caller_manager(store, plan.name).run_once(append, create_call(plan.key))
    (plan.results / plan.name).write_text(result, encoding="utf-8")
