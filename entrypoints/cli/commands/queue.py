"""``tileferry queue``: how the sources of the queue stand."""

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group

app = group("The queue of runs, source by source.")


@app.callback()
def _queue() -> None:
    """Have a verb, although there is only one so far."""


@app.command("gates", epilog=examples("tileferry queue gates", "tileferry queue gates --json"))
def gates_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show of each source whether its runs may start, and what waits.

    A source that answers "too many requests" closes its gate for all of its runs; waiting there
    costs them nothing. Tokens are what retries are paid from: they come back by themselves.
    """
    from tileferry.entrypoints.cli.running import queue

    queue.gates(config, json=json)
