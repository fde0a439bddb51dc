"""What several contract suites run over."""

import pytest
from support.cache_env import CacheEnv, create_memory_cache_env, create_postgres_cache_env
from support.control_plane import (
    ControlPlane,
    create_memory_control_plane,
    create_postgres_control_plane,
)
from support.idempotency_stores import (
    IdempotencyEnv,
    create_jetstream_env,
    create_memory_env,
    create_postgres_env,
)

from tileferry.adapters.memory import MemoryAuditSink


@pytest.fixture(params=["memory", "memory without audit", "postgres", "jetstream"])
def idempotency_env(request: pytest.FixtureRequest) -> IdempotencyEnv:
    """Every store of idempotency records."""
    if request.param == "jetstream":
        return create_jetstream_env(request)
    if request.param == "postgres":
        return create_postgres_env(request.getfixturevalue("database"))
    return create_memory_env(MemoryAuditSink() if request.param == "memory" else None)


@pytest.fixture(params=["memory", "postgres"])
def control_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """Every form of the control plane's books."""
    if request.param == "memory":
        return create_memory_control_plane()
    return create_postgres_control_plane(request.getfixturevalue("database"))


@pytest.fixture(params=["memory", "postgres"])
def cache_env(request: pytest.FixtureRequest) -> CacheEnv:
    """Every form of a cache's rows, ledger and flights."""
    if request.param == "memory":
        return create_memory_cache_env()
    return create_postgres_cache_env(request.getfixturevalue("database"))
