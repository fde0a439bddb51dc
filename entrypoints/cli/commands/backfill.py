"""``tileferry backfill``: many dates at once, planned first, and done exactly as planned."""

from pathlib import Path
from typing import Annotated

import typer

from tileferry.entrypoints.cli.declaring import ConfigFile, JsonFlag, examples, group
from tileferry.entrypoints.cli.options.declared import (
    AreaOption,
    BboxOption,
    ConfirmOption,
    CustomerOption,
    FromOption,
    OwnSourceOption,
    QueryOption,
    ReasonOption,
    SectorOption,
    ToOption,
    ZoomOption,
)

app = group("Many dates of a query at once: plan them, look at the plan, apply it.")


@app.command(
    "plan",
    epilog=examples(
        "tileferry backfill plan --customer-id acme --query roads --from 2026-01-01 --to 2026-01-31"
        " --bbox 36.1,49.9,36.4,50.1 --zoom 13-15 --sector stable_rear --out january.plan",
    ),
)
def plan_command(
    *,
    source: OwnSourceOption = None,
    customer_id: CustomerOption,
    query: QueryOption,
    first: FromOption,
    last: ToOption,
    bbox: BboxOption = None,
    area: AreaOption = None,
    zoom: ZoomOption,
    sector: SectorOption,
    reprocess: Annotated[
        bool, typer.Option("--reprocess", help="Take successes, too; they stay readable.")
    ] = False,
    include_terminal: Annotated[
        bool, typer.Option("--include-terminal", help="Take failures that were given up, too.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Where to write the plan; a new file.", dir_okay=False
        ),
    ],
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Write down what each day of a range would get; nothing is changed.

    The plan has a hash over every line: backfill apply does exactly what it says, or refuses.
    """
    from tileferry.entrypoints.cli.running import backfill

    backfill.planned(
        config,
        backfill.Wanted(
            source=source,
            customer_id=customer_id,
            query=query,
            first=first,
            last=last,
            bbox=bbox,
            area=area,
            zoom=zoom,
            sector=sector,
            reprocess=reprocess,
            include_terminal=include_terminal,
        ),
        out=out,
        json=json,
    )


@app.command(
    "apply",
    epilog=examples(
        "tileferry backfill apply january.plan --reason 'a new customer' --confirm-count 31",
    ),
)
def apply_command(
    *,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="What backfill plan wrote.", exists=True, dir_okay=False
        ),
    ],
    reason: ReasonOption,
    confirm_count: ConfirmOption = None,
    config: ConfigFile = None,
    json: JsonFlag = False,
) -> None:
    """Do exactly what a plan says, or refuse and name what has changed.

    Applied again, it starts nothing twice. Its runs go after all fresh work.

    Exit codes: 0 done, also when nothing was left to do; 2 the file is no plan, or was changed; 4
    refused.
    """
    from tileferry.entrypoints.cli.running import backfill

    backfill.applied(config, file, reason=reason, confirm=confirm_count, json=json)
