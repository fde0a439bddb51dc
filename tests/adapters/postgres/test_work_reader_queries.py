"""The lists of runs use their indexes, so they stay fast with a million runs."""

import pytest

from tileferry.adapters.postgres import Database, PostgresWorkReader, work_reader
from tileferry.application.ports.work import RunFilter
from tileferry.domain.runs import RunStatus


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (RunFilter(), "runs_by_submission"),
        (RunFilter(statuses=[RunStatus.PROCESSING]), "runs_leased"),
        (RunFilter(statuses=[RunStatus.ERROR]), "runs_of_note"),
    ],
)
def test_runs_are_listed_by_an_index(
    database: Database, monkeypatch: pytest.MonkeyPatch, wanted: RunFilter, index: str
) -> None:
    with database.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO runs (run_id, kind, source, priority, submitted_date, payload, status,"
            " ready, lease_epoch, worker, began_at, ended_at)"
            " SELECT 'r' || n, 'download_area', 'sat', 0, now() - n * interval '1 s', '{}',"
            " 'passed', false, 1, 'w', now(), now() FROM generate_series(1, 20000) AS n"
        )
        connection.exec_driver_sql("ANALYZE runs")
    monkeypatch.setattr(work_reader, "_RUNS", f"EXPLAIN {work_reader._RUNS}")
    monkeypatch.setattr(work_reader, "run_from_row", lambda row: row[0])
    plan = PostgresWorkReader(database=database).list_runs(wanted, limit=50)
    assert index in " ".join(map(str, plan))
