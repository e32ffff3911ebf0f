"""Every page in a real browser, with what a pipeline that ran has: it is drawn, light and dark,
from a small telephone to a wide screen, and its picture is made anew.

``PENSTOCK_PICTURES`` names the folder for the pictures of the documents (``docs/images``).
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_png import small
from web_harness import Pages

Start = Callable[..., Pages]
pytestmark = pytest.mark.spark
MOST_BYTES = 60_000
# Each page, and a text that it has once it is drawn.
PAGES = {
    "home": ("/", "shop"),
    "new": ("/new?source=airbyte:source-faker", "New pipeline"),
    "find": ("/find?words=postgres", "postgres"),
    "edit": ("/p/shop.yaml/edit", "API token"),
    "streams": ("/p/shop.yaml/streams", "orders"),
    "check": ("/p/shop.yaml/check", "Both ends answer"),
    "plan": ("/p/shop.yaml/plan", "orders"),
    "runs": ("/p/shop.yaml/runs", "partial"),
    "run": ("/p/shop.yaml/runs", "partial"),
    "rows": ("/p/shop.yaml/rows", "name"),
    "rejects": ("/p/shop.yaml/rejects", "id"),
    "state": ("/p/shop.yaml/state", "orders"),
    "machine": ("/machine", "Machine"),
}
FILE = """\
# Orders and people of our shop.
pipeline: shop
source:
  use: {source}
  config:
    region: eu
    token: "${{SHOP_TOKEN}}"
    rows: 250
    auth: {{ kind: key, key: "${{SHOP_KEY}}" }}
    tags: [spring, sale]
  streams:
    - {{ name: orders, mode: upsert }}
    - {{ name: people, mode: upsert }}
destination:
  use: parquet:./lake
"""


def shop(pages: Start) -> Pages:
    """A pipeline that ran, whose streams and answers are known."""
    site = pages(SHOP_TOKEN="right-token", SHOP_KEY="k-1234567").enter()
    (site.folder / "shop.yaml").write_text(FILE.format(source=f'"{site.source}"'))
    site.edit_page()
    for verb in ("discover", "check", "plan", "run"):
        answered = site.ask(f"/p/shop.yaml/{verb}", "POST", {}, origin=site.base)
        where = answered.headers.get("location", "")
        until = time.monotonic() + 120
        while where.startswith("/jobs/") and site.ask(where).status == 200:
            assert time.monotonic() < until, site.ask(where).text
            time.sleep(0.2)
    until = time.monotonic() + 240
    while "partial" not in site.ask("/p/shop.yaml/runs").text:
        assert time.monotonic() < until, site.ask("/p/shop.yaml/runs").text
        time.sleep(0.5)
    return site


def test_every_page_is_drawn_and_has_its_picture(
    pages: Start, browser: Any, tmp_path: Path
) -> None:
    site = shop(pages)
    kept = os.environ.get("PENSTOCK_PICTURES")
    folder = Path(kept) if kept else tmp_path / "pictures"
    folder.mkdir(exist_ok=True)
    wrong: list[str] = []
    name, _, value = site.cookie.partition("=")
    for scheme, width in (("light", 1120), ("dark", 1120), ("light", 380), ("dark", 1920)):
        context = browser.new_context(viewport={"width": width, "height": 720}, color_scheme=scheme)
        context.add_cookies([{"name": name, "value": value, "url": site.base}])
        page = context.new_page()
        console: list[str] = []
        page.on("console", lambda m, c=console: c.append(m.text))
        for each, (path, text) in PAGES.items():
            page.goto(site.base + path)
            if each == "run":
                page.click("table tbody a >> nth=0")
                page.wait_for_load_state()
            if text not in page.inner_text("main") or page.locator("main .fault").count():
                wrong.append(f"{each}: {page.inner_text('main')[:300]}")
            if (drawn := page.evaluate("document.documentElement.scrollWidth")) > width:
                wrong.append(f"{each} is {drawn} wide at {width}")
            made = page.screenshot()
            if len(made) < 4_000:
                wrong.append(f"{each} is empty")
            if kept:
                word = "" if (scheme, width) == ("light", 1120) else f"-{scheme}-{width}"
                (folder / f"ui-{each}{word}.png").write_bytes(small(made))
        wrong += [f"console: {line}" for line in console]
        context.close()
    assert wrong == []


def test_the_pictures_of_the_documents_are_small_and_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    pictures = [*(docs / "images").glob("ui-*.png")]
    assert pictures and [p.name for p in pictures if p.stat().st_size > MOST_BYTES] == []
    text = (docs / "ui.md").read_text()
    assert [p.name for p in pictures if p.name not in text] == []
