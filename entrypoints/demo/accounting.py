"""What was decided on the way: why, by which policy, and whether the log can be trusted."""

from tileferry.entrypoints.demo.findings import failed_run, instructive_entry
from tileferry.entrypoints.demo.scenery import FAILING
from tileferry.entrypoints.demo.stage import DemoError, Stage


def an_account(stage: Stage) -> None:
    """Ask for the reasons, make a decision again, and walk the chain of the audit log."""
    stage.begin("Why?")
    stage.say("Why did that first run fail?")
    stage.run("runs", "why", failed_run(stage.clerk.ask("state", "inspect", FAILING)))
    stage.say("What is tried again, and when, is decided in one place, by a policy.")
    stage.run("policy", "explain", "--category", "DOWNLOAD", "--error", "503")
    stage.say("Every decision is kept with its inputs, and can be made again.")
    entry = instructive_entry(stage.clerk.ask("audit", "tail", "--limit", "100000"))
    if entry is None:
        raise DemoError("the audit log has no retry")
    stage.run("audit", "replay", str(entry))
    stage.run("audit", "stats", "--since", "15m")
    stage.say("And nobody has touched the log since.")
    stage.run("audit", "verify")
