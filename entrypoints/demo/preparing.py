"""Before the flight: a new laptop, a plan, a download that loses its power, and the verdict."""

import json
from pathlib import Path
from typing import Any

from tileferry.entrypoints.demo.counting import Notebook, downloaded
from tileferry.entrypoints.demo.scenery import AREA, FLIGHT, SECTOR, Size
from tileferry.entrypoints.demo.stage import Stage


def a_new_laptop(stage: Stage) -> None:
    """Find out what is missing, and mend it."""
    stage.begin("A new laptop")
    stage.say("Is it fit for work? Not yet, and each finding says what to do.")
    stage.run("doctor", ends_with=7)
    stage.say("The database is made, from nothing.")
    stage.run("db", "upgrade")


def a_plan(stage: Stage, size: Size) -> None:
    """Ask first."""
    stage.begin("What would it take?")
    stage.run("plan", *_area(size))


def a_download(stage: Stage, size: Size, notes: Notebook) -> None:
    """Lose power on the way, go on, and count what the provider was asked for."""
    download = ("download", *_area(size))
    stage.begin("The download, and a laptop that dies")
    stage.say(
        "The provider fails and throttles now and then; some of what it sends is damaged.",
        "In the middle of it all the laptop loses its power.",
    )
    notes.before_download = len(stage.lines())
    stage.run_and_kill(*download, after_requests=size.kill_after)
    stage.say("Could it fly like this? There are holes.")
    notes.killed = _verdict(stage, size, ends_with=3)
    # By now the provider has written down what the dead had asked for with their last breath.
    notes.before_resuming = len(stage.lines())
    stage.say("The same command goes on where it was.")
    stage.run(*download)
    notes.after_download = len(stage.lines())
    count = downloaded(stage.lines(), notes)
    stage.say(
        f"By the provider's own record: {len(count.tiles)} tiles, {count.requests} requests.",
        f"{count.failed} answers were bad and {count.in_the_air} were lost with the power:"
        " those were asked for again.",
        f"Of {len(count.safe)} tiles that were safe by then, {count.twice} were fetched twice.",
    )


def a_verdict(stage: Stage, size: Size, notes: Notebook) -> None:
    """Ask whether to fly."""
    stage.begin("Go or no-go?")
    notes.ready = _verdict(stage, size, ends_with=0)


def _area(size: Size) -> tuple[str, ...]:
    return "--area", AREA, "--zoom", size.zoom, "--sector", SECTOR, "--flight", FLIGHT


def _verdict(stage: Stage, size: Size, *, ends_with: int) -> dict[str, Any]:
    """Have an area judged; what it draws for map programs is read back."""
    file = "map.geojson"
    stage.run("cache", "verify", *_area(size), "--geojson", file, ends_with=ends_with)
    drawn: dict[str, Any] = json.loads(Path(stage.home, file).read_text(encoding="utf-8"))
    return drawn
