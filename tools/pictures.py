"""Takes the README screenshots of the demo's data in Chromium; see ``make pictures``.

Runs the demo, serves its data, and takes screenshots of the console. ``--demo`` uses the data of an
earlier demo (``build/demo``, after ``make demo``); ``--all`` captures every page into a folder.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright

from tileferry.entrypoints.demo.scenario import FAILING, FLIGHT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
TILEFERRY = (sys.executable, "-m", "tileferry.entrypoints.cli")
CHROMIUM = "/usr/bin/chromium"
SIZE = {"width": 1_280, "height": 760}
QUALITY = 82
ALL_PAGES = (
    *("map", "flights", f"flights/{FLIGHT}", "transfers", "runs", "partitions", "giveups"),
    *("audit", "policies", "health"),
)


@contextmanager
def serve_demo(folder: Path) -> Iterator[str]:
    """Serve the data of a demo for a block; yield the address."""
    config = str(folder / "tileferry.toml")
    command = [*TILEFERRY, "serve", "--port", "0", "--json", "--config", config]
    process = subprocess.Popen(  # noqa: S603  # our own command
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TILEFERRY_C11_SERVICE_API_KEY": "demo"},
    )
    try:
        yield json.loads(process.stdout.readline() if process.stdout else "")["url"]
    finally:
        process.terminate()
        process.wait()


def open_page(browser: "Browser", address: str, **options: object) -> "Page":
    """Open a page, and wait until its pictures are loaded and its live parts have arrived."""
    page = browser.new_context(**{"viewport": SIZE, **options}).new_page()  # type: ignore[arg-type]
    page.goto(address, wait_until="load")
    if "/map" in address:
        page.wait_for_selector(".leaflet-tile-loaded")
    page.wait_for_timeout(1_500)
    return page


def save(page: "Page", file: Path) -> None:
    """Write a picture: photographs of imagery as JPEG, others with few colours."""
    picture = Image.open(io.BytesIO(page.screenshot()))
    if file.suffix == ".jpg":
        picture.convert("RGB").save(file, quality=QUALITY, progressive=True)
    else:
        picture.convert("RGB").quantize(255).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size:,} bytes")


def photograph_readme(browser: "Browser", url: str, folder: Path) -> None:
    """Photograph what the README shows."""
    save(open_page(browser, f"{url}/map?flight={FLIGHT}"), folder / "console-map.jpg")
    save(open_page(browser, f"{url}/partitions/{FAILING}"), folder / "console-partition.png")


def photograph_all(browser: "Browser", url: str, folder: Path) -> None:
    """Photograph every page at three widths, light and dark, to review the design."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ALL_PAGES:
        for width in (1_440, 1_024, 390):
            for theme in ("light", "dark"):
                size = {"width": width, "height": 900}
                page = open_page(browser, f"{url}/{name}", viewport=size, color_scheme=theme)
                save(page, folder / f"{name.replace('/', '-')}-{width}-{theme}.png")
                page.context.close()


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, help="folder with the data of an earlier demo")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="capture every page instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tileferry-pictures-") as made:
        demo = given.demo or Path(made) / "demo"
        if given.demo is None:
            report = Path(made) / "report.html"
            command = [*TILEFERRY, "demo", "--keep", demo, "--report", report]
            subprocess.run(command, check=True)  # noqa: S603  # our own command
        with serve_demo(demo) as url, sync_playwright() as playwright:
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
            if given.all:
                photograph_all(browser, url, given.all)
            else:
                photograph_readme(browser, url, ROOT / "_docs" / "images")
            browser.close()


if __name__ == "__main__":
    main()
