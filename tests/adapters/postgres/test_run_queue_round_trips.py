"""How often a claim waits for the server, and what happens if it never answers."""

import pytest
from support.control_plane import LEASE, W1, create_postgres_control_plane
from support.proxies import Cut, PostgresProxy

from tileferry.adapters.postgres import Database, PostgresRunQueue
from tileferry.domain.errors import DatabaseError
from tileferry.domain.runs import RunStatus


def test_exchange_takes_two_round_trips(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    desk = create_postgres_control_plane(database)
    queue = PostgresRunQueue(database=proxied_database)
    for _ in range(12):
        desk.submit_run()
    ended = queue.claim(W1, limit=2, lease=LEASE)
    for _ in range(5):  # from some time on the statements are prepared
        before = proxy.round_trips
        kept, claimed = queue.exchange(ended, W1, limit=2, lease=LEASE)
        assert proxy.round_trips - before == 2  # everything, COMMIT
        assert list(kept) == [run.run_id for run in ended]
        ended = claimed
    assert desk.reader.count_runs() == {RunStatus.PASSED: 10, RunStatus.PROCESSING: 2}


def test_claim_that_is_lost_before_its_commit_claims_nothing(
    database: Database, proxied_database: Database, proxy: PostgresProxy
) -> None:
    desk = create_postgres_control_plane(database)
    queue = PostgresRunQueue(database=proxied_database)
    desk.submit_run()
    assert queue.get_wait_s() == 0.0  # there is a connection
    proxy.cut_at(b"row_number", Cut.BEFORE_COMMIT)
    with pytest.raises(DatabaseError, match="the connection was lost") as caught:
        queue.claim(W1, limit=1, lease=LEASE)
    assert caught.value.is_unreachable
    assert proxy.cuts == 1
    assert [run.lease_epoch for run in queue.claim(W1, limit=1, lease=LEASE)] == [1]
