"""The façade: what a command can do, a program can do; nothing else builds the product."""

import ast
from contextlib import ExitStack
from io import StringIO
from pathlib import Path

import pytest
from attrs import evolve
from rich.console import Console
from support.audit_events import create_retry_attempted
from support.embedding_env import AREA, BOX, EmbeddingEnv
from support.provider import RunningProvider

from tileferry.adapters.filesystem import find_waiting
from tileferry.adapters.memory import ManualClock
from tileferry.application.ports.work import RunFilter
from tileferry.domain.errors import InvalidStateError, NotFoundError
from tileferry.domain.health import CheckStatus
from tileferry.domain.runs import WorkerId
from tileferry.domain.tiles import (
    BBox,
    OperatorNote,
    TileCoverage,
    TileId,
    VotingStatus,
)
from tileferry.entrypoints import embedding
from tileferry.entrypoints.cli.tree import iter_commands
from tileferry.entrypoints.config import AuditConfig, LogConfig, SinkName
from tileferry.entrypoints.embedding import Tileferry
from tileferry.entrypoints.installation import Installation
from tileferry.entrypoints.provider.imagery import draw_tile

ROOT = Path(__file__).parents[2]
FACADE = {
    "coverage": "area_survey",
    "plan": "plan_downloads",
    "download": "download",
    "flight list": "flights",
    "flight show": "flights",
    "flight report": "report_flight",
    "flight pin": "flights",
    "flight unpin": "flights",
    "flight expire": "flights",
    "flight rm": "flights",
    "cache stats": "compute_cache_stats",
    "cache verify": "cache_verification",
    "cache explain": "tile_lives",
    "cache prune": "cache_maintenance",
    "cache compact": "cache_maintenance",
    "cache pin": "flights",
    "cache unpin": "flights",
    "cache export": "export",
    "cache import": "import_archive",
    "pack create": "packs",
    "pack inventory": "packs",
    "pack apply": "packs",
    "pack key": "packs",
    "push": "push_flight",
    "ingest": "ingest",
    "upload": "upload",
    "giveups list": "giveups",
    "giveups show": "giveups",
    "giveups reopen": "giveups",
    "runs list": "work_reader",
    "runs show": "inspector",
    "runs why": "inspector",
    "runs cancel": "run_control",
    "runs retry": "run_control",
    "runs submit download": "submit_download",
    "runs submit upload": "submit_upload",
    "worker": "open_worker",
    "queue gates": "inspector",
    "state inspect": "inspector",
    "state terminal": "inspector",
    "state retry": "partition_control",
    "state mark-terminal": "partition_control",
    "backfill plan": "partition_control",
    "backfill apply": "partition_control",
    "audit tail": "audit_reader",
    "audit verify": "audit_reader",
    "audit stats": "audit_reader",
    "audit replay": "audit_reader",
    "policy show": "policies",
    "policy explain": "policies",
    "policy simulate": "policies",
    "policy tune": "tune_policies",
    "serve": "map_service",
    "db upgrade": "upgrade_database",
    "db status": "find_server_status",
    "db start": "start_server",
    "db stop": "stop_server",
    "db shell": "build_psql_command",
    "backup create": "backups",
    "backup verify": "backups",
    "backup restore": "backups",
}
"""The public member of ``Tileferry`` for each command."""
OUTSIDE = {"doctor", "config show", "config init", "provider serve", "provider faults", "demo"}
"""``check_health``, the configuration's own module, and what is no part of an installation."""


@pytest.fixture
def env(tmp_path: Path, database_url: str, reference_provider: RunningProvider) -> EmbeddingEnv:
    return EmbeddingEnv(tmp_path, database_url, reference_provider)


def test_every_command_has_a_member_of_the_facade() -> None:
    assert {" ".join(words) for words, _ in iter_commands()} == {*FACADE, *OUTSIDE}
    assert not [name for name in FACADE.values() if not hasattr(Tileferry, name)]
    assert "check_health" in embedding.__all__


def test_only_the_installation_imports_the_container() -> None:
    users = set()
    for path in (ROOT / "entrypoints").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "tileferry.entrypoints.container"
            ):
                users.add(path.relative_to(ROOT).as_posix())
    assert users == {"entrypoints/installation_parts.py"}


def test_nothing_overrides_a_provider_or_replaces_sinks() -> None:
    for path in (ROOT / "entrypoints").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in {"override", "override_providers"}, path
            targets = node.targets if isinstance(node, ast.Assign) else []
            assert not any(
                isinstance(target, ast.Attribute) and target.attr == "sinks" for target in targets
            ), path


def test_use_cases_need_an_open_installation(env: EmbeddingEnv) -> None:
    installation = Installation(env.create_config())
    for name in sorted(set(FACADE.values())):
        member = getattr(Installation, name, None)
        if isinstance(member, property) and name != "policies":
            with pytest.raises(InvalidStateError, match="is not open yet"):
                getattr(installation, name)


def test_clock_is_given_on_construction(env: EmbeddingEnv) -> None:
    clock = ManualClock(1_000.0)
    with Installation(env.create_config(), clock=clock) as installation:
        records = installation.select_flight_records("F7", None, on_ground=True)
    assert records is not None
    assert records.get_current().recorded_at.timestamp() == 1_000.0


def test_invariant_14_wall_clock_of_a_client_does_not_judge_what_is_stored(
    env: EmbeddingEnv,
) -> None:
    """By a clock of the year 2096 all tiles are too old, and a confirmation of today is, too."""
    clock = ManualClock(4e9)
    with Tileferry(env.create_config(), clock=clock) as ferry:
        report = ferry.download(flight="F7", **AREA)
        verdict = ferry.verify_flight("F7", confirmed_within_days=1.0)
    assert report.tiles_downgraded == 0
    assert verdict.verdict.is_go


def test_log_console_sets_up_the_configured_log(env: EmbeddingEnv, tmp_path: Path) -> None:
    log = LogConfig(file=tmp_path / "log.jsonl")
    config = evolve(env.create_config(), log=log)
    with Installation(config, log_console=Console(file=StringIO())) as installation:
        installation.retry_manager.audit.logger.warning("hello", extra={"kind": "test"})
    assert "hello" in log.file.read_text("utf-8")


def test_cache_can_be_surveyed_counted_pinned_and_verified(env: EmbeddingEnv) -> None:
    coverage = TileCoverage(bbox=BBox.parse(BOX), zoom_levels=[14])
    with env.create_tileferry() as ferry:
        assert ferry.compute_cache_stats().tiles == 0
        listed = ferry.area_survey.summarize(coverage)[14].tiles
        report = ferry.download(flight="F7", **AREA)
        assert ferry.compute_cache_stats().tiles == report.tiles_downloaded == listed
        assert ferry.flights.pin("F7", OperatorNote(by="me")).tiles == listed
        assert ferry.compute_cache_stats().pinned_flights == ("F7",)
        assert ferry.verify_flight("F7", quick=True).total.present == listed
        verified = ferry.cache_verification.verify()
        assert (verified.sound, verified.tiles) == (True, listed)
        ferry.export(env.home / "all.mbtiles")
        again = ferry.import_archive(env.home / "all.mbtiles", sector="stable_rear")
        assert (again.tiles_unchanged, again.entries_refused) == (listed, 0)


def test_giveups_come_with_reopening_instructions(env: EmbeddingEnv) -> None:
    card = env.home / "card" / "16" / "39000"
    card.mkdir(parents=True)
    (card / "22000.jpg").write_bytes(draw_tile(16, 39_000, 22_000))
    with env.create_tileferry() as ferry:
        ferry.ingest(env.home / "card", flight="F7")
        assert ferry.tile_inventory.count_pending("F7") == 1
        env.provider.set_faults({"fault": "poison", "tile": "*/16/39000/22000"})
        while ferry.tile_inventory.count_pending("F7"):
            ferry.upload(flight="F7", on_ground=True)
        assert ferry.tile_inventory.count_captured("F7") == {VotingStatus.UPLOAD_GIVEUP: 1}
        (giveup,) = ferry.giveups.iter_giveups("F7")
        assert giveup.reopening_sql.startswith("UPDATE tiles SET voting_status = 'pending'")
        assert Path(ferry.giveups.extract_image(giveup.tile.tile_id)).is_file()
        with pytest.raises(NotFoundError):
            ferry.giveups.get_giveup(TileId(source="s", zoom=1, x=0, y=0))


def test_runs_are_listed_explained_and_cancelled(env: EmbeddingEnv) -> None:
    with env.create_tileferry() as ferry:
        run = ferry.submit_download(flight="F7", **AREA)
        assert [one.run_id for one in ferry.work_reader.list_runs(RunFilter(), limit=9)] == [
            run.run_id
        ]
        ferry.run_control.cancel(run.run_id, reason="wrong area", by="test")
        assert ferry.inspector.run(run.run_id).run.error_message is not None
        assert [*ferry.audit_reader.find_about(run.run_id)]
        assert ferry.audit_reader.verify().intact
        with ferry.open_worker(
            WorkerId("w1"), until_idle=True, is_stopping=lambda: False
        ) as worker:
            worker.run()
        assert worker.processed == 0


@pytest.mark.parametrize("by", ["close", "worker"])
def test_waiting_audit_events_are_delivered(env: EmbeddingEnv, by: str) -> None:
    file = env.home / "audit.jsonl"
    config = evolve(env.create_config(), audit=AuditConfig(sinks=[SinkName.JSONL], jsonl_path=file))
    with ExitStack() as stack:
        ferry = stack.enter_context(Tileferry(config))
        worker = stack.enter_context(
            ferry.open_worker(WorkerId("w"), until_idle=True, is_stopping=lambda: False)
        )
        file.mkdir()  # the sink is unavailable
        ferry.retry_manager.audit.emit(create_retry_attempted(1))
        assert [outbox.events for outbox in ferry.find_waiting_events()] == [1]
        file.rmdir()
        if by == "worker":
            worker.run()
            assert ferry.find_waiting_events() == []
    assert file.read_bytes() == create_retry_attempted(1).canonical_bytes() + b"\n"
    assert find_waiting(config.c11.cache_root) == []


def test_health_of_an_installation_is_checked(
    env: EmbeddingEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(env.home)
    monkeypatch.setenv("TILEFERRY_DATABASE_URL", env.database_url)
    found = {result.subject: result.verdict for result in embedding.check_health()}
    assert found["schema"] is CheckStatus.OK
    assert found["key"] is CheckStatus.FAILED
