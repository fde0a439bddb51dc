"""``tileferry db``: the database's schema."""

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group

app = group("The database: its schema and its state.")


@app.command("upgrade", epilog=examples("tileferry db upgrade"))
def upgrade_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Bring the database's schema to what this version needs. Running it again is harmless."""
    from tileferry.entrypoints.cli.running import db

    db.upgraded(config, json=json)


@app.command("status", epilog=examples("tileferry db status", "tileferry db status --json"))
def status_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Show the server's version and where the schema stands. Exit code 7 when it cannot be used."""
    from tileferry.entrypoints.cli.running import db

    db.status(config, json=json)
