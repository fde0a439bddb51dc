"""``tileferry backup``: create, verify and restore backups of an installation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tileferry.entrypoints.cli.command_group import (
    ConfigFile,
    JsonFlag,
    declare_group,
    format_examples,
)

if TYPE_CHECKING:
    from tileferry.domain.backups import BackupManifest

app = declare_group("Create, verify and restore backups of the whole installation.")
CREATE_SCHEMA = "tileferry.backup.create.v1"
VERIFY_SCHEMA = "tileferry.backup.verify.v1"
RESTORE_SCHEMA = "tileferry.backup.restore.v1"
BackupFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the backup.")]
_DAMAGE_MAX = 20


@app.command(
    "create", epilog=format_examples("tileferry backup create /srv/backups/tileferry-2026-11-18")
)
def create_command(
    *, folder: BackupFolder, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Copy database, cache and raw partitions to a new folder.

    The copy is verified. Downloads and workers can run meanwhile. Space of evicted tiles is freed
    after the backup. Keys, passwords and the configuration are not part of a backup; neither are
    JetStream's data.

    A backup that does not complete leaves nothing with its name; re-run to start again.
    """
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    progress = ItemProgress()
    with open_installation(config, progress) as installation:
        installation.get_schema_status().check()
        with ProgressView(progress):
            manifest = installation.backups.create(folder)
    if json:
        print_json(CREATE_SCHEMA, {"place": str(folder), **_manifest_to_json(manifest)})
    else:
        stdout.print(_render(folder, manifest, "complete and verified"))


@app.command(
    "verify", epilog=format_examples("tileferry backup verify /srv/backups/tileferry-2026-11-18")
)
def verify_command(
    *, folder: BackupFolder, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Compare every byte of a backup with its checksums. Nothing is restored.

    Exit codes: 0 every byte is intact; 3 files are damaged, missing or not listed; 4 not a
    complete backup.
    """
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import (
        open_installation,
        print_json,
        print_refusals,
        stdout,
    )
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    progress = ItemProgress()
    with open_installation(config, progress) as installation, ProgressView(progress):
        report = installation.backups.verify(folder)
    damage = report.damage
    if json:
        named = [{"path": one.path, "problem": one.problem} for one in damage.named[:_DAMAGE_MAX]]
        body = {"sound": report.sound, "damaged_files": damage.count, "damage": named}
        about = _manifest_to_json(report.manifest)
        print_json(VERIFY_SCHEMA, {"place": str(folder), **about, **body})
    else:
        verdict = "intact" if report.sound else f"{damage.count:,} damaged files"
        stdout.print(_render(folder, report.manifest, verdict))
        named_files = [(one.path, one.problem) for one in damage.named]
        print_refusals("damaged", "problem", named_files, count=damage.count)
    if not report.sound:
        raise typer.Exit(ExitCode.PARTIAL)


@app.command(
    "restore", epilog=format_examples("tileferry backup restore /srv/backups/tileferry-2026-11-18")
)
def restore_command(
    *, folder: BackupFolder, config: ConfigFile = None, json: JsonFlag = False
) -> None:
    """Restore a backup into an empty installation.

    The database, the cache folder and the raw folder must be empty.
    The backup is verified first, and the cache and the audit log after it. Nothing is ever
    overwritten. The schema of an older version is upgraded.

    Exit codes: 0 restored and intact; 3 restored with the damage that it had; 4 the backup is
    damaged, or its destination is not empty.
    """
    from tileferry.entrypoints.cli.exit_codes import ExitCode
    from tileferry.entrypoints.cli.output import open_installation, print_json, stdout
    from tileferry.entrypoints.cli.progress_view import ItemProgress, ProgressView

    progress = ItemProgress()
    with open_installation(config, progress) as installation, ProgressView(progress):
        report = installation.backups.restore(folder)
    if json:
        body = {
            "sound": report.sound,
            "damaged_tiles": report.cache.damaged_tiles,
            "audit_intact": report.audit.intact,
        }
        about = _manifest_to_json(report.manifest)
        print_json(RESTORE_SCHEMA, {"place": str(folder), **about, **body})
    else:
        cache = "sound" if report.cache.sound else f"{report.cache.damaged_tiles:,} damaged tiles"
        audit = "intact" if report.audit.intact else "not intact; run tileferry audit verify"
        verdict = f"restored; cache {cache}, audit log {audit}"
        stdout.print(_render(folder, report.manifest, verdict))
    if not report.sound:
        raise typer.Exit(ExitCode.PARTIAL)


def _manifest_to_json(manifest: "BackupManifest") -> dict[str, Any]:
    database = manifest.database
    return {
        "created_at": manifest.created_at.isoformat(),
        "created_by": manifest.created_by,
        "schema_revision": database.schema_revision,
        "tiles": database.tiles,
        "audit_sequence": database.audit_sequence,
        "audit_hash": database.audit_hash,
        "files": manifest.files,
        "size_bytes": manifest.size_bytes,
    }


def _render(folder: Path, manifest: "BackupManifest", verdict: str) -> Any:
    from tileferry.domain.text import format_bytes, format_utc
    from tileferry.entrypoints.cli.output import build_facts_table

    database = manifest.database
    rows = {
        "folder": folder,
        "created": f"{format_utc(manifest.created_at)} by tileferry {manifest.created_by}",
        "schema": database.schema_revision,
        "tiles": f"{database.tiles:,}",
        "audit log": f"{database.audit_sequence:,} entries, head {database.audit_hash}",
        "files": f"{manifest.files:,}, {format_bytes(manifest.size_bytes)}",
        "verdict": verdict,
    }
    return build_facts_table("Backup", rows)
