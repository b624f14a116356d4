"""Every page as a picture: `python -m bench.screenshots [--out DIR] [--only NAME]... [--docs]`.

With the example data and with an empty database, light and dark, 2560, 1440 and 390 px wide; an
`index.html` shows all of them in one look. Each page is loaded once and then shown in every theme
and width. `--docs` instead writes the pictures of the README to
docs/images. Needs playwright and a Chromium on PATH (or in CHROMIUM).
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from app.demo.load import load_demo
from bench.serving import served
from core.config import data_dir

ROOT = Path(__file__).resolve().parent.parent
WIDTHS, DOCS_WIDTH = (2560, 1440, 390), 1440
THEMES = ("light", "dark")
MIN_HEIGHT, MAX_HEIGHT = 900, 4200
MAX_DOCS_BYTES = 300_000
LOAD_LIMIT_MS = 60_000
EMPTY_PAGES = {"overview": ""} | {
    p: p
    for p in (
        *("submit", "queue", "runs", "compare", "studies", "trends", "gpus", "import"),
        "definitions",
    )
}
_POLL_MS = 300
_IS_CALM = """() => {
  const busy = document.querySelector('[data-testid=stSkeleton], [data-stale=true]');
  const app = document.querySelector('[data-testid=stApp]');
  const runs = app?.getAttribute('data-test-script-state') !== 'notRunning';
  window.calmPolls = busy || runs ? 0 : (window.calmPolls ?? 0) + 1;
  return window.calmPolls >= 4;
}"""
"""Chunks of the page's own code load after the script has ended: calm must last four polls."""


def example_pages(names: dict[str, str]) -> dict[str, str]:
    """Return name -> path of what is shown with the example data; `names` maps run name -> id."""
    eager, tuned = names["decode 2 layers, eager"], names["decode 2 layers, max-autotune"]
    plain, compiled = (names[f"H200: decode 1 layer fp8 {c}"] for c in ("none", "reduce overhead"))
    oom, train = (names[f"transformer training step, {n}"] for n in ("fp32, out of memory", "bf16"))
    tabs = ("Phases", "Timeline", "API and transfers", "Counters and roofline", "Files")
    return {
        **EMPTY_PAGES,
        "submit-sweep": f"submit?from={eager}",
        "run": f"run?run_id={eager}",
        **{
            f"run-{t.split()[0].lower()}": f"run?run_id={eager}&tab={t.replace(' ', '+')}"
            for t in tabs
        },
        "run-train-timeline": f"run?run_id={train}&tab=Timeline",
        "run-memory": f"run?run_id={oom}&tab=Memory",
        "compare-two": f"compare?a={eager}&b={tuned}&metric=kernel_time",
        "compare-decided": f"compare?a={plain}&b={compiled}",
        "studies-published": "studies?name=attention-scaling&published=true",
        "runs-filter-error": "runs?q=gpu:H100+%22open",
    }


def docs_pages(names: dict[str, str]) -> dict[str, str]:
    """Return file stem -> path of the pictures in the README."""
    pages = example_pages(names)
    return {
        "overview": pages["overview"],
        "run": pages["run"],
        "compare": pages["compare-decided"],
        "submit": "submit?workload=decode",
        "study": pages["studies-published"],
    }


def settle(tab: Any) -> None:
    """Wait until the script has run and no placeholder is left, and it stays so."""
    tab.evaluate("window.calmPolls = 0")
    tab.wait_for_selector("[data-testid=stMain] h1", timeout=LOAD_LIMIT_MS)
    tab.wait_for_function(_IS_CALM, timeout=LOAD_LIMIT_MS, polling=_POLL_MS)


def shoot(browser: Any, url: str, pages: dict[str, str], out: Path, prefix: str) -> list[str]:
    """Write one picture a page, theme and width; return what could not be shown."""
    failed = []
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": MIN_HEIGHT})
    for name, path in pages.items():
        tab = context.new_page()
        try:
            tab.goto(f"{url}/{path}", timeout=LOAD_LIMIT_MS)
            settle(tab)
            _all_looks(tab, out, f"{prefix}-{name}")
        except Exception as exc:  # A page that does not load must not cost the other pictures.
            failed.append(f"{prefix} {name}: {str(exc).splitlines()[0]}")
        tab.close()
    context.close()
    return failed


def _all_looks(tab: Any, out: Path, stem: str) -> None:
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": MIN_HEIGHT})
        settle(tab)
        tall = tab.evaluate("document.querySelector('[data-testid=stMain]')?.scrollHeight ?? 900")
        height = max(MIN_HEIGHT, min(tall + 20, MAX_HEIGHT))
        tab.set_viewport_size({"width": width, "height": height})
        for theme in THEMES:
            tab.emulate_media(color_scheme=theme)
            settle(tab)
            tab.screenshot(path=str(out / f"{stem}-{theme}-{width}.png"))


def shoot_docs(browser: Any, url: str, pages: dict[str, str], out: Path) -> None:
    """Write the README's pictures: light, 1440 x 900, with a palette so that each stays small."""
    from PIL import Image

    context = browser.new_context(
        viewport={"width": DOCS_WIDTH, "height": MIN_HEIGHT}, color_scheme="light"
    )
    for stem, path in pages.items():
        tab = context.new_page()
        tab.goto(f"{url}/{path}", timeout=LOAD_LIMIT_MS)
        settle(tab)
        tab.wait_for_timeout(1500)
        target = out / f"{stem}.png"
        tab.screenshot(path=str(target))
        _in_few_colours(Image.open(target).convert("RGB")).save(target, optimize=True)
        if target.stat().st_size > MAX_DOCS_BYTES:
            raise SystemExit(f"{target.name}: over {MAX_DOCS_BYTES} bytes")
        tab.close()
    context.close()


def _in_few_colours(shot: Any) -> Any:
    """Return a picture with a palette: of two ways the one that is nearer to it."""
    from PIL import Image, ImageChops, ImageStat

    def error(picture: Any) -> float:
        return sum(ImageStat.Stat(ImageChops.difference(shot, picture.convert("RGB"))).rms)

    ways = (Image.Quantize.MEDIANCUT, Image.Quantize.MAXCOVERAGE)
    return min((shot.quantize(colors=256, method=way, kmeans=1) for way in ways), key=error)


def index(out: Path) -> None:
    """Write a page with all pictures, one row a page."""
    rows: dict[str, list[str]] = {}
    for path in sorted(out.glob("*.png")):
        rows.setdefault(path.stem.rsplit("-", 2)[0], []).append(path.name)
    body = "".join(
        f"<h2>{escape(name)}</h2><div>"
        + "".join(f'<a href="{f}"><img src="{f}" alt="{f}" loading="lazy"></a>' for f in files)
        + "</div>"
        for name, files in rows.items()
    )
    style = "body{font:15px system-ui}div{display:flex;gap:8px;align-items:flex-start}"
    style += "img{max-height:560px;border:1px solid #999}"
    (out / "index.html").write_text(
        f"<!doctype html><meta charset=utf-8><title>Screenshots</title><style>{style}</style>{body}"
    )


@contextmanager
def chromium() -> Iterator[Any]:
    """Start one browser for all pictures."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def names_of(folder: Path) -> dict[str, str]:
    """Return run name -> id."""
    from core.config import data_dir
    from db.connection import opened
    from db.runs import list_runs

    with opened(data_dir(folder).db_path) as db:
        frame = list_runs(db, limit=1000)
    return dict(zip(frame["name"], frame["id"], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("screenshots"))
    parser.add_argument("--only", action="append", help="pages whose name contains this")
    parser.add_argument("--docs", action="store_true", help="write the README's pictures")
    options = parser.parse_args()
    out: Path = ROOT / "docs" / "images" if options.docs else options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    wanted = options.only or [""]
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        full, empty = Path(scratch) / "full", Path(scratch) / "empty"
        empty.mkdir()
        load_demo(data_dir(full), lambda _: None)
        names = names_of(full)
        if options.docs:
            pages = {n: p for n, p in docs_pages(names).items() if any(w in n for w in wanted)}
            with served(full, Path(scratch) / "docs.log") as (url, _):
                shoot_docs(browser, url, pages, out)
            return
        for folder, chosen, prefix in (
            (full, example_pages(names), "example"),
            (empty, EMPTY_PAGES, "empty"),
        ):
            pages = {n: p for n, p in chosen.items() if any(w in n for w in wanted)}
            if pages:
                with served(folder, Path(scratch) / f"{prefix}.log") as (url, _):
                    failed += shoot(browser, url, pages, out, prefix)
    index(out)
    print(out / "index.html")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
