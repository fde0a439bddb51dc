"""``python -m powerloss``: record a workload, cut the power many times, check every disk."""

import argparse
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from attrs import frozen
from support.provider import RunningProvider, serve_provider

from powerloss.checks import DiskCheck, Sent
from powerloss.images import DiskHistory, PowerCut, Survivors, choose_cuts
from powerloss.storage import find_missing, mount_image, mount_logged
from powerloss.workload import (
    AREAS,
    CAPTURED,
    POISONED,
    Site,
    SkippedSync,
    iter_promises,
)
from tileferry.adapters.postgres.embedded import EmbeddedServer
from tileferry.domain.tiles import build_capture_source

SIZE_MB = 224
FINISH_EVERY = 10
"""Each tenth disk is also used to finish the interrupted work."""
SLOW = {"fault": "slow", "call": "tile", "rate": 0.5}


@frozen(kw_only=True)
class Recording:
    """The disk's history, and what the provider received meanwhile."""

    folder: Path
    provider_url: str
    sent: list[Sent]
    digests: dict[str, str]


def record(folder: Path, provider: RunningProvider, bug: SkippedSync | None) -> Recording:
    """Run the workload on a logged disk."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if bug is not None:
        environment["POWERLOSS_BUG"] = bug.value
    with mount_logged(folder, size_mb=SIZE_MB) as disk:
        subprocess.run(  # noqa: S603  # our own module
            [sys.executable, "-m", "powerloss.workload", disk, provider.url, folder / "promises"],
            env=environment,
            check=True,
        )
    batches: dict[str, set[str]] = {}
    for line in provider.uploads:
        batches.setdefault(line.idempotency_key, set()).add(line.tile_id)
    sent = [
        Sent(
            at_s=datetime.fromisoformat(line.at).timestamp(),
            key=line.idempotency_key,
            tiles=frozenset(batches.get(line.idempotency_key, ())),
        )
        for line in provider.requests
        if line.method == "POST" and line.idempotency_key is not None
    ]
    return Recording(
        folder=folder, provider_url=provider.url, sent=sent, digests=_fetch_digests(provider)
    )


def _fetch_digests(provider: RunningProvider) -> dict[str, str]:
    with provider.client() as client:
        return {
            str(tile): hashlib.sha256(
                client.get(f"/api/satellite/tiles/{tile.zoom}/{tile.x}/{tile.y}").content
            ).hexdigest()
            for area in AREAS.values()
            for tile in area.coverage.tiles("satellite")
        }


def check_cuts(
    recording: Recording, cuts: list[PowerCut], scratch: Path
) -> Iterator[tuple[PowerCut, list[str]]]:
    """Yield the violations after each cut; the cuts are in the order of the log."""
    folder = recording.folder
    history = DiskHistory.read(folder / "base.img", folder / "log")
    promises = list(iter_promises(folder / "promises"))
    image = scratch / "cut.img"
    for number, cut in enumerate(cuts):
        cut_at_s = history.events[cut.index].at_s
        image.write_bytes(history.build_image(cut))
        with mount_image(image, scratch / "mnt") as disk:
            check = DiskCheck(
                site=Site(disk=disk, provider_url=recording.provider_url),
                promises=[promise for promise in promises if promise.at_s < cut_at_s],
                sent=[batch for batch in recording.sent if batch.at_s < cut_at_s],
                digests=recording.digests,
            )
            try:
                found = list(check.find_violations())
                if not found and number % FINISH_EVERY == 0:
                    found = list(check.finish())
            finally:
                EmbeddedServer(check.site.create_config().data_dir).leave()
        yield cut, [str(violation) for violation in found]


def _check_share(
    recording: Recording,
    cuts: list[PowerCut],
    scratch: Path,
    results: "multiprocessing.Queue[tuple[PowerCut, list[str]] | None]",
) -> None:
    try:
        for result in check_cuts(recording, cuts, scratch):
            results.put(result)
    finally:
        results.put(None)


def run(recording: Recording, cuts: list[PowerCut], scratch: Path, jobs: int) -> int:
    """Check all cuts in several processes; return how many disks broke a promise."""
    results: multiprocessing.Queue[tuple[PowerCut, list[str]] | None] = multiprocessing.Queue()
    workers = []
    for number in range(jobs):
        place = scratch / str(number)
        place.mkdir(mode=0o755)
        share = cuts[number * len(cuts) // jobs : (number + 1) * len(cuts) // jobs]
        worker = multiprocessing.Process(
            target=_check_share, args=(recording, share, place, results)
        )
        worker.start()
        workers.append(worker)
    kinds: Counter[Survivors] = Counter()
    broken, started_s, running = 0, time.monotonic(), len(workers)
    while running:
        result = results.get()
        if result is None:
            running -= 1
            continue
        cut, violations = result
        kinds[cut.survivors] += 1
        if violations:
            broken += 1
            print(f"cut {cut}: {'; '.join(violations)}", flush=True)
        if kinds.total() % 100 == 0:
            rate = kinds.total() / (time.monotonic() - started_s)
            print(f"{kinds.total()} of {len(cuts)} disks, {rate:.1f} a second", flush=True)
    for worker in workers:
        worker.join()
        broken += worker.exitcode != 0
    counts = ", ".join(f"{count} {kind.value}" for kind, count in sorted(kinds.items()))
    print(f"{kinds.total()} disks after power cuts ({counts}): {broken} with violations")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m powerloss", description=__doc__)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--bug", choices=[bug.value for bug in SkippedSync])
    parser.add_argument("--cut", type=PowerCut.parse, help="check one cut of a kept recording")
    parser.add_argument("--keep", type=Path, help="folder for the recording; it is not deleted")
    options = parser.parse_args()
    if (missing := find_missing()) is not None:
        print(f"powerloss: cannot run: {missing}", file=sys.stderr)
        return 2
    bug = None if options.bug is None else SkippedSync(options.bug)
    poison = {"fault": "poison", "tile": f"{build_capture_source(CAPTURED)}/{POISONED}"}
    scratch = Path(
        tempfile.mkdtemp(prefix="powerloss-", dir="/dev/shm")
    )  # images are large, and written once
    scratch.chmod(0o755)
    folder = options.keep or scratch / "recording"
    try:
        with serve_provider(poison) as provider:
            folder.mkdir(mode=0o755)
            recording = record(folder, provider, bug)
            history = DiskHistory.read(folder / "base.img", folder / "log")
            cuts = choose_cuts(history.events, options.images, seed=options.seed)
            if options.cut is not None:
                cuts = [options.cut]
            print(f"{len(history.events)} block events; {len(cuts)} cuts, seed {options.seed}")
            del history
            broken = run(recording, cuts, scratch, min(options.jobs, len(cuts)))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if bug is not None:
        print(f"planted bug {bug.value}: {'found' if broken else 'NOT FOUND'}")
        return 0 if broken else 1
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
