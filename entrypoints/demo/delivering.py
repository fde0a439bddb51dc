"""After the flight: pictures are taken in and uploaded; what nobody wants is for a human."""

from tileferry.entrypoints.demo.scenery import CARD, FLIGHT, POISONED, fill_card
from tileferry.entrypoints.demo.stage import Stage


def a_flight(stage: Stage) -> None:
    """Take in what the aircraft captured."""
    stage.begin("The aircraft is back")
    fill_card(stage.home / CARD)
    stage.run("ingest", "--flight", FLIGHT, CARD)


def an_upload(stage: Stage) -> None:
    """Upload it twice over; in the end some tiles are given up."""
    upload = ("upload", "--flight", FLIGHT, "--on-ground")
    stage.begin("The upload, and what the provider does not want")
    stage.say(
        "One answer is lost on the way, one upload meets a 503: both are repeated to the",
        f"byte. {len(POISONED)} pictures are rejected, however often they are tried.",
    )
    stage.run(*upload, ends_with=3)
    stage.say(f"Later again: only those {len(POISONED)} are sent, and their budget is spent.")
    stage.run(*upload, ends_with=3)
    stage.say("A human decides what becomes of them.")
    stage.run("giveups", "list")
