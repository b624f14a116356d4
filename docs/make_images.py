"""Make the pictures of the docs: `python -m docs.make_images`.

The dashboard with the example data, light, 1440 x 900, as PNG with a palette so that each stays
under 300 kB. Needs the test environment (`./warpboard test` makes it) and a Chromium on PATH.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from bench.pages import example
from bench.screenshots import names_of, settle
from bench.serving import served

OUT = Path(__file__).resolve().parent / "images"
SIZE = {"width": 1440, "height": 900}
MAX_BYTES = 300_000


def pictures(names: dict[str, str]) -> dict[str, str]:
    """Return file stem -> path of the page, from run name -> id."""
    eager, tuned = names["decode 2 layers, eager"], names["decode 2 layers, max-autotune"]
    return {
        "run": f"run?run_id={eager}",
        "compare": f"compare?a={eager}&b={tuned}&metric=kernel_time",
    }


def shoot(browser: Any, url: str, pages: dict[str, str]) -> None:
    """Write one picture a page."""
    context = browser.new_context(viewport=SIZE, color_scheme="light")
    tab = context.new_page()
    for stem, path in pages.items():
        tab.goto(f"{url}/{path}")
        tab.wait_for_selector(".js-plotly-plot", timeout=60_000)
        settle(tab)
        tab.wait_for_timeout(1500)
        target = OUT / f"{stem}.png"
        tab.screenshot(path=str(target))
        Image.open(target).convert("RGB").quantize(colors=128).save(target, optimize=True)
        if target.stat().st_size > MAX_BYTES:
            raise SystemExit(f"{target.name}: {target.stat().st_size} bytes are too many")
        print(f"{target.name}: {target.stat().st_size} bytes")
    context.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    OUT.mkdir(exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        data = Path(scratch) / "data"
        example(data)
        with served(data, Path(scratch) / "log.txt") as (url, _):
            shoot(browser, url, pictures(names_of(data)))
        browser.close()


if __name__ == "__main__":
    main()
