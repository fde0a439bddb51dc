"""The chapters of the demo, from the first checks to the audit log, and their playback."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from rich.console import Console

from tileferry.entrypoints.config import CONFIG_FILE, ENV_PREFIX
from tileferry.entrypoints.demo.findings import (
    DemoNotes,
    Findings,
    collect_findings,
    count_download,
    find_failed_run,
    find_instructive_entry,
)
from tileferry.entrypoints.demo.query_process import start_query_process
from tileferry.entrypoints.demo.scenario import (
    AREA,
    CARD,
    DAYS,
    FAILING,
    FLIGHT,
    PARTITION_ZOOM,
    POISONED,
    QUERY,
    SECTOR,
    DemoSize,
    render_config,
    write_captures,
)
from tileferry.entrypoints.demo.session import DemoError, DemoSession, run_faulty_provider


def prepare_laptop(session: DemoSession) -> None:
    """Run the checks, then create the database."""
    session.begin_chapter("A new laptop")
    session.say("Is the laptop ready? Not yet. Each failed check says what to do.")
    session.run("doctor", ends_with=7)
    session.say("Create the database.")
    session.run("db", "upgrade")


def plan_download(session: DemoSession, size: DemoSize) -> None:
    session.begin_chapter("Plan the download")
    session.run("plan", *_area_options(size))


def download_with_kill(session: DemoSession, size: DemoSize, notes: DemoNotes) -> None:
    """Kill a download, resume it, and count the requests that the provider received."""
    download = ("download", *_area_options(size))
    session.begin_chapter("Download, and lose power")
    session.say(
        "The provider sometimes fails, throttles, or sends damaged tiles.",
        "In the middle of the download the laptop loses power.",
    )
    notes.before_download = len(session.read_record())
    session.run_and_kill(*download, after_requests=size.kill_after)
    session.say("Is the area ready to fly? No: tiles are missing.")
    notes.killed = _verify_area(session, size, ends_with=3)
    # The provider has recorded the requests in flight when the process was killed.
    notes.before_resuming = len(session.read_record())
    session.say("Run the same command again to resume.")
    session.run(*download)
    notes.after_download = len(session.read_record())
    count = count_download(session.read_record(), notes)
    session.say(
        f"The provider's record: {len(count.tiles)} tiles, {count.requests} requests.",
        f"{count.failed} requests failed and {count.in_the_air} were lost with the power;"
        " these tiles were requested again.",
        f"Of {len(count.safe)} tiles that were safe by then, {count.twice} were fetched twice.",
    )


def verify_before_flight(session: DemoSession, size: DemoSize, notes: DemoNotes) -> None:
    """Check whether the area is ready for the flight."""
    session.begin_chapter("Go or no-go?")
    notes.ready = _verify_area(session, size, ends_with=0)


def _area_options(size: DemoSize) -> tuple[str, ...]:
    return "--area", AREA, "--zoom", size.zoom, "--sector", SECTOR, "--flight", FLIGHT


def _verify_area(session: DemoSession, size: DemoSize, *, ends_with: int) -> dict[str, Any]:
    """Verify the area and return the GeoJSON map that the command writes."""
    file = "map.geojson"
    session.run("cache", "verify", *_area_options(size), "--geojson", file, ends_with=ends_with)
    drawn: dict[str, Any] = json.loads(Path(session.home, file).read_text(encoding="utf-8"))
    return drawn


def ingest_captures(session: DemoSession) -> None:
    """Store the tiles that the aircraft captured."""
    session.begin_chapter("The aircraft is back")
    write_captures(session.home / CARD)
    session.run("ingest", "--flight", FLIGHT, CARD)


def upload_captures(session: DemoSession) -> None:
    """Upload the captures twice; some tiles are given up."""
    upload = ("upload", "--flight", FLIGHT, "--on-ground")
    session.begin_chapter("Upload, and rejected tiles")
    session.say(
        "One response is lost and one upload gets a 503: both are repeated with the same bytes.",
        f"{len(POISONED)} images are rejected every time.",
    )
    session.run(*upload, ends_with=3)
    session.say(
        f"Later, only those {len(POISONED)} are sent again; now their attempts are used up."
    )
    session.run(*upload, ends_with=3)
    session.say("An operator decides what to do with them.")
    session.run("giveups", "list")


_PLAN = "march.plan"


def reprocess_partition(session: DemoSession) -> None:
    """Plan a backfill, apply it, and retry the failed partition."""
    session.begin_chapter("Retry a failed partition")
    session.say("A backfill of three days: first a plan, then exactly that plan.")
    first, last = DAYS
    area = ("--area", AREA, "--zoom", str(PARTITION_ZOOM), "--sector", SECTOR)
    session.run("backfill", "plan", *QUERY, "--from", first, "--to", last, *area, "--out", _PLAN)
    session.run("backfill", "apply", _PLAN, "--reason", "a new customer")
    session.run("worker", "--until-idle", ends_with=3)
    session.say(
        "On the first day a strip of imagery was missing, and the validator rejected the day."
    )
    session.run("state", "inspect", *QUERY)
    session.say("The policy would retry it later. The operator retries it now, with a reason.")
    session.run("state", "retry", FAILING, "--reason", "the mosaic is fixed")
    session.run("worker", "--until-idle")
    session.run("state", "inspect", FAILING)


def explain_decisions(session: DemoSession) -> None:
    """Explain and replay a decision, and verify the hash chain of the audit log."""
    session.begin_chapter("Why?")
    session.say("Why did that first run fail?")
    session.run("runs", "why", find_failed_run(session.clerk.query("state", "inspect", FAILING)))
    session.say("A policy decides what is retried, and when.")
    session.run("policy", "explain", "--category", "DOWNLOAD", "--error", "503")
    session.say("Every decision is recorded with its inputs and can be replayed.")
    entry = find_instructive_entry(session.clerk.query("audit", "tail", "--limit", "100000"))
    if entry is None:
        raise DemoError("the audit log has no retry")
    session.run("audit", "replay", str(entry))
    session.run("audit", "stats", "--since", "15m")
    session.say("And the log has not been changed since.")
    session.run("audit", "verify")


def show_map(session: DemoSession, map_page: Path) -> None:
    """Write the report of the flight, with its imagery."""
    session.begin_chapter("See the map")
    session.say("The imagery and the verdict, as one page that needs no network.")
    session.run("flight", "report", FLIGHT, "--output", map_page.name)
    map_page.write_bytes((session.home / map_page.name).read_bytes())


def run_demo(
    size: DemoSize, console: Console, out: IO[str], *, map_page: Path, keep: Path | None = None
) -> Findings:
    """Play all chapters; text goes to the console, the commands' stdout to ``out``.

    The installation stays in the folder ``keep``, if one is given.
    """
    notes = DemoNotes()
    with open_demo_session(console, out, keep) as stage:
        prepare_laptop(stage)
        plan_download(stage, size)
        download_with_kill(stage, size, notes)
        verify_before_flight(stage, size, notes)
        ingest_captures(stage)
        upload_captures(stage)
        reprocess_partition(stage)
        explain_decisions(stage)
        show_map(stage, map_page)
        return collect_findings(stage, notes)


@contextmanager
def open_demo_session(
    console: Console, out: IO[str], keep: Path | None = None
) -> Iterator[DemoSession]:
    """Open a folder, a provider and a query process for the duration of the demo."""
    with ExitStack() as opened:
        folder = keep or opened.enter_context(tempfile.TemporaryDirectory(prefix="tileferry-demo-"))
        home = Path(folder).resolve()
        record, environment = home / "requests.jsonl", _build_environment()
        with (
            run_faulty_provider(home, record, environment) as url,
            start_query_process(home, environment) as clerk,
        ):
            (home / CONFIG_FILE).write_text(render_config(home, url), encoding="utf-8")
            yield DemoSession(
                home=home,
                console=console,
                out=out,
                environment=environment,
                record=record,
                clerk=clerk,
            )


def _build_environment() -> Mapping[str, str]:
    """Return the environment of the commands, without variables of the user's own installation."""
    mine = {name: text for name, text in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return {**mine, f"{ENV_PREFIX}C11_SERVICE_API_KEY": "demo"}
