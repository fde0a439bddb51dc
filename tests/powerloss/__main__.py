"""``python -m powerloss``: record a workload, cut the power many times, check every disk."""

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import asdict, define, evolve, frozen
from support.provider import RunningProvider, serve_provider

from powerloss.checks import DiskCheck, Sent
from powerloss.images import DiskHistory, Moment, PowerCut, choose_cuts
from powerloss.site import (
    AREAS,
    CAPTURED,
    LEASE_S,
    PARTITIONS,
    POISONED,
    Promise,
    Site,
    read_promises,
)
from powerloss.storage import FileSystem, find_missing, mount_image, mount_logged
from powerloss.syncs import BUGS, HIDDEN_BUGS
from tileferry.adapters.postgres.embedded import EmbeddedServer
from tileferry.domain.tiles import build_capture_source

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

SIZE_MB = 192
FINISH_EVERY = 10
"""Each tenth disk is also used to finish the interrupted work."""
IMAGES_PER_RECORDING = 2_000
WITHOUT_JOURNAL_SHARE = 4
"""One of this many disks has a file system without a journal."""
BUG_IMAGES = 100
MAIN = "main"
KEPT = Path("build/powerloss")
"""Where recordings with violations are kept."""
_POISON = {"fault": "poison", "tile": f"{build_capture_source(CAPTURED)}/{POISONED}"}


@frozen(kw_only=True)
class Recording:
    """The disk's history, and what the provider received meanwhile."""

    folder: Path
    kind: FileSystem
    seed: int
    sent: list[Sent]
    digests: dict[str, str]

    @classmethod
    def load(cls, folder: Path) -> "Recording":
        """Read a recording that was kept."""
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        sent = [Sent(**{**each, "tiles": frozenset(each["tiles"])}) for each in facts.pop("sent")]
        return cls(**{**facts, "kind": FileSystem(facts["kind"])}, folder=folder, sent=sent)

    def keep(self, folder: Path) -> "Recording":
        """Copy it to a folder, to repeat its checks."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path in (*self.folder.glob("*/base.img"), *self.folder.glob("*/log")):
            (folder / path.parent.name).mkdir(exist_ok=True)
            shutil.copy(path, folder / path.parent.name)
        shutil.copy(self.folder / "promises", folder)
        facts = asdict(self, filter=lambda field, _: field.name != "folder")
        text = json.dumps(facts, default=list)
        (folder / "facts.json").write_text(text, encoding="utf-8")
        return evolve(self, folder=folder)

    def read_promises(self) -> list[Promise]:
        return read_promises(self.folder / "promises")

    def read_history(self, disk: str = MAIN) -> DiskHistory:
        return DiskHistory.read(self.folder / disk / "base.img", self.folder / disk / "log")

    def choose_cuts(self, count: int, *, seed: int, whole: bool = False) -> list[PowerCut]:
        moments = [Moment(p.at_s, p.facts.get("phase")) for p in self.read_promises()]
        return choose_cuts(
            self.read_history().events,
            moments,
            count,
            seed=seed,
            whole=whole or not self.kind.has_journal,
        )


def record(folder: Path, kind: FileSystem, *, seed: int, bug: str | None) -> Recording:
    """Run the workload on a logged disk."""
    folder.mkdir(mode=0o755, parents=True)
    with serve_provider(_POISON) as provider:
        with ExitStack() as stack:
            disk = folder / "mnt"
            for name, each in _list_disks(kind).items():
                place = disk if name == MAIN else disk / name
                stack.enter_context(mount_logged(folder / name, place, each, size_mb=SIZE_MB))
            command = [disk, provider.url, folder / "promises", seed, kind, *([bug] if bug else [])]
            subprocess.run(  # noqa: S603  # our own module
                [sys.executable, "-m", "powerloss.workload", *map(str, command)], check=True
            )
        return Recording(
            folder=folder,
            kind=kind,
            seed=seed,
            sent=_list_sent(provider),
            digests=_fetch_digests(provider),
        )


def _list_disks(kind: FileSystem) -> dict[str, FileSystem]:
    """Return the disks by their names; the others are mounted in folders of the main one."""
    return {MAIN: kind} if kind.has_journal else {MAIN: kind, "postgres": FileSystem.WITH_JOURNAL}


def _list_sent(provider: RunningProvider) -> list[Sent]:
    batches: dict[str, set[str]] = {}
    for line in provider.uploads:
        batches.setdefault(line.idempotency_key, set()).add(line.tile_id)
    return [
        Sent(
            at_s=datetime.fromisoformat(line.at).timestamp(),
            key=line.idempotency_key,
            tiles=frozenset(batches.get(line.idempotency_key, ())),
        )
        for line in provider.requests
        if line.method == "POST" and line.idempotency_key is not None
    ]


def _fetch_digests(provider: RunningProvider) -> dict[str, str]:
    with provider.client() as client:
        return {
            str(tile): hashlib.sha256(
                client.get(f"/api/satellite/tiles/{tile.zoom}/{tile.x}/{tile.y}").content
            ).hexdigest()
            for area in (*AREAS.values(), *PARTITIONS.values())
            for tile in area.coverage.tiles("satellite")
        }


@frozen
class Result:
    """What was found on the disk after a cut."""

    cut: PowerCut
    violations: list[str]


def check_cuts(recording: Recording, cuts: list[PowerCut], scratch: Path) -> Iterator[Result]:
    """Check the disk after each cut; the cuts are in the order of the log."""
    promises, disks = recording.read_promises(), _list_disks(recording.kind)
    histories = {name: recording.read_history(name) for name in disks}
    with serve_provider(_POISON) as provider:
        for number, cut in enumerate(cuts):
            cut_at_s = histories[MAIN].events[cut.index].at_s
            with ExitStack() as stack:
                disk = scratch / "mnt"
                for name, history in histories.items():
                    same = cut if name == MAIN else history.find_cut(cut_at_s)
                    history.write_image(same, scratch / f"{name}.img")
                    place = disk if name == MAIN else disk / name
                    mounted = mount_image(scratch / f"{name}.img", place, disks[name])
                    stack.enter_context(mounted)
                check = DiskCheck(
                    site=Site(disk=disk, provider_url=provider.url, lease_s=LEASE_S),
                    promises=[promise for promise in promises if promise.at_s < cut_at_s],
                    sent=[batch for batch in recording.sent if batch.at_s < cut_at_s],
                    digests=recording.digests,
                )
                try:
                    found = [str(violation) for violation in check.find_violations()]
                    if not found and number % FINISH_EVERY == 0:
                        found = _finish(check, provider)
                finally:
                    _stop_server(EmbeddedServer(check.site.create_config().data_dir))
            yield Result(cut, found)


def _stop_server(server: EmbeddedServer) -> None:
    """Stop the server without saving anything: its disk is not used again."""
    with suppress(ProcessLookupError):
        if (pid := server.find_status().pid) is not None:
            os.kill(pid, signal.SIGQUIT)
    server.leave()


def _finish(check: DiskCheck, provider: RunningProvider) -> list[str]:
    provider.server.provider.reset()
    found = [str(violation) for violation in check.finish()]
    acknowledged = {
        tile
        for promise in check.promises
        if promise.what == "answered"
        for tile in promise.facts["acknowledged"]
    }
    repeated = {line.tile_id for line in provider.uploads} & acknowledged
    if repeated:
        found.append(f"invariant 7: {len(repeated)} acknowledged tiles were sent again")
    return found


def _check_share(
    recording: Recording,
    cuts: list[PowerCut],
    scratch: Path,
    results: "multiprocessing.Queue[Result | None]",
    stop: "Event",
) -> None:
    logging.disable(logging.CRITICAL)  # a recovery warns of what it repairs
    try:
        for result in check_cuts(recording, cuts, scratch):
            results.put(result)
            if stop.is_set():
                break
    finally:
        results.put(None)


@define
class Tally:
    """Counts disks and violations, and prints them."""

    total: int
    started_s: float
    kinds: Counter[str]
    broken: int = 0

    @classmethod
    def start(cls, total: int) -> "Tally":
        return cls(total, time.monotonic(), Counter())

    def add(self, recording: Recording, result: Result) -> None:
        self.kinds[f"{recording.kind} {result.cut.survivors}"] += 1
        if result.violations:
            self.broken += 1
            where = f"--filesystem {recording.kind} --seed {recording.seed} --cut {result.cut}"
            print(f"{where}: {'; '.join(result.violations)}", flush=True)
        if self.kinds.total() % 100 == 0:
            rate = self.kinds.total() / (time.monotonic() - self.started_s)
            print(f"{self.kinds.total()} of {self.total} disks, {rate:.1f} a second", flush=True)

    def summarize(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return (
            f"{self.kinds.total()} disks after power cuts ({counts}) in "
            f"{time.monotonic() - self.started_s:.0f} s: {self.broken} with violations"
        )


@frozen(kw_only=True)
class Runner:
    """Records and checks, in several processes."""

    scratch: Path
    jobs: int

    def run(
        self, recording: Recording, cuts: list[PowerCut], tally: Tally, *, until_broken: bool
    ) -> None:
        """Check all cuts, or until the first violation."""
        results: multiprocessing.Queue[Result | None] = multiprocessing.Queue()
        stop = multiprocessing.Event()
        workers = []
        for number in range(min(self.jobs, len(cuts))):
            place = self.scratch / str(number)
            place.mkdir(mode=0o755, exist_ok=True)
            share = cuts[number :: self.jobs]
            worker = multiprocessing.Process(
                target=_check_share, args=(recording, share, place, results, stop)
            )
            worker.start()
            workers.append(worker)
        running = len(workers)
        while running:
            result = results.get()
            if result is None:
                running -= 1
                continue
            tally.add(recording, result)
            if until_broken and tally.broken:
                stop.set()
        for worker in workers:
            worker.join()
            if worker.exitcode != 0:
                raise OSError("a process that checks disks has failed, see above")

    def check_product(self, images: int, *, seed: int, kinds: Sequence[FileSystem]) -> int:
        """Check disks of several recordings; return how many broke a promise."""
        tally = Tally.start(images)
        for number in range(0, images, IMAGES_PER_RECORDING):
            left = min(IMAGES_PER_RECORDING, images - number)
            for kind in kinds:  # the one without a journal may have too few flushes
                share = left if kind is kinds[-1] else left // WITHOUT_JOURNAL_SHARE
                left -= self._check_recording(
                    kind, share, seed + number // IMAGES_PER_RECORDING, tally
                )
        print(tally.summarize())
        return tally.broken

    def _check_recording(self, kind: FileSystem, count: int, seed: int, tally: Tally) -> int:
        recording = record(self.scratch / "recording", kind, seed=seed, bug=None)
        cuts, broken = recording.choose_cuts(count, seed=seed), tally.broken
        print(f"{kind}, seed {seed}: {len(cuts)} cuts", flush=True)
        self.run(recording, cuts, tally, until_broken=False)
        if tally.broken > broken:
            kept = recording.keep(KEPT / f"{kind}-{seed}")
            print(f"repeat one with: python -m powerloss --replay {kept.folder} --cut CUT")
        shutil.rmtree(recording.folder)
        return len(cuts)

    def find_bug(self, bug: str, *, seed: int, kinds: Sequence[FileSystem]) -> bool:
        """Return whether the checks notice a skipped sync."""
        for kind in kinds:
            recording = record(self.scratch / "recording", kind, seed=seed, bug=bug)
            tally = Tally.start(BUG_IMAGES)
            cuts = recording.choose_cuts(BUG_IMAGES, seed=seed, whole=True)
            self.run(recording, cuts, tally, until_broken=True)
            shutil.rmtree(recording.folder)
            disks = tally.kinds.total()
            if tally.broken:
                print(f"planted bug {bug}: found on {kind}, after {disks} disks", flush=True)
                return True
            print(f"planted bug {bug}: not found on {kind}, in {disks} disks", flush=True)
        return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m powerloss", description=__doc__)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--filesystem", type=FileSystem, choices=list(FileSystem))
    parser.add_argument(
        "--bug", choices=[*BUGS, *HIDDEN_BUGS, "all"], help="skip syncs; it must be found"
    )
    parser.add_argument("--replay", type=Path, help="a recording that was kept")
    parser.add_argument("--cut", type=PowerCut.parse, help="the cut to check in it")
    options = parser.parse_args()
    if (missing := find_missing()) is not None:
        print(f"powerloss: cannot run: {missing}", file=sys.stderr)
        return 2
    kinds = list(FileSystem) if options.filesystem is None else [options.filesystem]
    # Images are large, and written once.
    scratch = Path(tempfile.mkdtemp(prefix="powerloss-", dir="/dev/shm"))
    scratch.chmod(0o755)
    runner = Runner(scratch=scratch, jobs=options.jobs)
    try:
        if options.replay is not None:
            tally = Tally.start(1)
            runner.run(Recording.load(options.replay), [options.cut], tally, until_broken=False)
            print(tally.summarize())
            return 1 if tally.broken else 0
        if options.bug is not None:
            names = list(BUGS) if options.bug == "all" else [options.bug]
            missed = [n for n in names if not runner.find_bug(n, seed=options.seed, kinds=kinds)]
            print(f"{len(names) - len(missed)} of {len(names)} planted bugs found")
            return 1 if missed else 0
        return 1 if runner.check_product(options.images, seed=options.seed, kinds=kinds) else 0
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
