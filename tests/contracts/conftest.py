"""What several contract suites run over."""

import pytest
from support.idempotency_stores import Kept, in_jetstream, in_memory, in_postgres
from support.work_desk import Desk, memory_desk, postgres_desk

from tileferry.adapters.memory import MemoryAuditSink


@pytest.fixture(params=["memory", "memory without audit", "postgres", "jetstream"])
def kept(request: pytest.FixtureRequest) -> Kept:
    """Every store of idempotency records."""
    if request.param == "jetstream":
        return in_jetstream(request)
    if request.param == "postgres":
        return in_postgres(request.getfixturevalue("database"))
    return in_memory(MemoryAuditSink() if request.param == "memory" else None)


@pytest.fixture(params=["memory", "postgres"])
def desk(request: pytest.FixtureRequest) -> Desk:
    """Every form of the control plane's books."""
    if request.param == "memory":
        return memory_desk()
    return postgres_desk(request.getfixturevalue("database"))
