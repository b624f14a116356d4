"""Every page as a picture: `python -m bench.screenshots [--out screenshots] [--page NAME]`.

With the example data and with an empty database, light and dark, 1440 and 390 px wide; an
`index.html` shows all of them in one look. Needs playwright and a Chromium on PATH.
"""

import argparse
import os
import shutil
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from bench.pages import example
from bench.serving import served

WIDTHS = (1440, 390)
THEMES = ("light", "dark")
MAX_HEIGHT = 4200
EMPTY_PAGES = {"overview": "", "submit": "submit", "queue": "queue", "runs": "runs"} | {
    p: p for p in ("compare", "studies", "gpus", "import", "definitions")
}


def example_pages(ids: list[str], names: dict[str, str]) -> dict[str, str]:
    """Return name -> path of what is shown with the example data."""
    eager, tuned = names["decode 2 layers, eager"], names["decode 2 layers, max-autotune"]
    train = names.get("transformer training step, bf16", ids[-1])
    oom = next((i for n, i in names.items() if "out of memory" in n.lower()), ids[-1])
    tabs = ("Phases", "Timeline", "API and transfers", "Counters and roofline", "Files")
    return {
        **EMPTY_PAGES,
        "run": f"run?run_id={eager}",
        **{
            f"run-{t.split()[0].lower()}": f"run?run_id={eager}&tab={t.replace(' ', '+')}"
            for t in tabs
        },
        "run-train-timeline": f"run?run_id={train}&tab=Timeline",
        "run-memory": f"run?run_id={oom}&tab=Memory",
        "compare-two": f"compare?a={eager}&b={tuned}&metric=kernel_time",
        "studies-published": "studies?name=attention-scaling&published=true",
    }


def shoot(browser: Any, url: str, pages: dict[str, str], out: Path, prefix: str) -> None:
    """Write one picture a page, theme and width."""
    for theme in THEMES:
        for width in WIDTHS:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=theme
            )
            tab = context.new_page()
            for name, path in pages.items():
                tab.set_viewport_size({"width": width, "height": 900})
                tab.goto(f"{url}/{path}")
                settle(tab)
                height = tab.evaluate(
                    "document.querySelector('[data-testid=stMain]')?.scrollHeight ?? 900"
                )
                tab.set_viewport_size(
                    {"width": width, "height": max(900, min(height + 20, MAX_HEIGHT))}
                )
                settle(tab)
                tab.screenshot(path=str(out / f"{prefix}-{name}-{theme}-{width}.png"))
            context.close()


def settle(tab: Any) -> None:
    """Wait until the script has run and no placeholder is left."""
    tab.wait_for_selector("[data-testid=stMain] h1", timeout=30_000)
    tab.wait_for_function(
        "!document.querySelector('[data-testid=stSkeleton], [data-testid=stStatusWidget],"
        " [data-stale=true]')",
        timeout=30_000,
    )
    tab.wait_for_timeout(600)


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


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("screenshots"))
    parser.add_argument("--page", help="only pages whose name contains this")
    options = parser.parse_args()
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        full, empty = Path(scratch) / "full", Path(scratch) / "empty"
        empty.mkdir()
        ids = example(full)
        pages = example_pages(ids, names_of(full))
        for folder, chosen, prefix in ((full, pages, "example"), (empty, EMPTY_PAGES, "empty")):
            wanted = {n: p for n, p in chosen.items() if (options.page or "") in n}
            with served(folder, Path(scratch) / f"{prefix}.log") as (url, _):
                shoot(browser, url, wanted, out, prefix)
        browser.close()
    index(out)
    print(out / "index.html")


def names_of(folder: Path) -> dict[str, str]:
    """Return run name -> id."""
    from core.config import data_dir
    from db.connection import opened
    from db.runs import list_runs

    with opened(data_dir(folder).db_path) as db:
        frame = list_runs(db, limit=200)
    return dict(zip(frame["name"], frame["id"], strict=True))


if __name__ == "__main__":
    main()
