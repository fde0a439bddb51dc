"""``tileferry doctor``: is this installation fit for work?"""

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, single

app = single()


@app.command("doctor", epilog=examples("tileferry doctor", "tileferry doctor --json"))
def doctor_command(*, config: ConfigFile = None, json: JsonFlag = False) -> None:
    """Check this installation, and say how to mend what is wrong.

    It looks at Python, the configuration and misspelt variables, the log, the database and its
    schema, the cache's folder, disk and lock, the clock, the key, and whether the provider
    answers, with which certificate. It changes nothing, but that an embedded database is started
    and made if there is none.

    Exit codes: 0 nothing failed, warnings are no failure; else the code that a command would end
    with: 2 a setting, 5 the provider, 6 the key or the certificate, 7 the database or the disk.
    """
    from tileferry.entrypoints.cli.running import doctor

    doctor.examine(config, json=json)
