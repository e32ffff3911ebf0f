"""Every page in a real browser, with what a pipeline that ran has: it is drawn, light and dark,
from a small telephone to a wide screen, and its picture is made anew.

``PENSTOCK_PICTURES`` names the folder for the pictures of the documents (``docs/images``).
"""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_png import small
from web_harness import SOURCE, Pages

import warm_spark

pytestmark = pytest.mark.spark
MOST_BYTES = 60_000
# Each page, and a text that it has once it is drawn.
PAGES = {
    "home": ("/", "shop"),
    "new": ("/new?source=airbyte:source-faker", "New pipeline"),
    "open": ("/open", "Open a file"),
    "find": ("/find?words=postgres", "postgres"),
    "edit": ("/p/shop.yaml/edit", "API token"),
    "streams": ("/p/shop.yaml/streams", "orders"),
    "check": ("/p/shop.yaml/check", "Both ends answer"),
    "plan": ("/p/shop.yaml/plan", "orders"),
    "runs": ("/p/shop.yaml/runs", "succeeded"),
    "run": ("/p/shop.yaml/runs", "succeeded"),
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


def shop(site: Pages) -> Pages:
    """A pipeline that ran, whose streams and answers are known."""
    source = SOURCE.replace("<script>alert(1)</script>", "").replace("<i>row</i>", "Ada")
    source = source.replace(r" <a href=\"javascript:alert(2)\">x</a>", "")
    source = source.replace('"emitted_at": 1}}', '"emitted_at": int(time.time() * 1000)}}')
    program = site.folder / "source-shop"
    program.write_text(f"#!{sys.executable}\n{source}")
    program.chmod(0o755)
    (site.folder / "shop.yaml").write_text(FILE.format(source="airbyte:./source-shop"))
    site.edit_page()
    for verb in ("discover", "check", "run"):
        ask(site, verb)
    until = time.monotonic() + 240
    while "s-succeeded" not in site.ask("/p/shop.yaml/runs").text:
        assert time.monotonic() < until, site.ask("/p/shop.yaml/runs").text
        time.sleep(0.5)
    new = '"name": {"type": "string"}, "city": {"type": "string"}'  # a column comes later
    program.write_text(program.read_text().replace('"name": {"type": "string"}', new))
    ask(site, "plan")
    return site


def ask(site: Pages, verb: str) -> None:
    """Presses a button, and waits for the work to end."""
    answered = site.ask(f"/p/shop.yaml/{verb}", "POST", {}, origin=site.base)
    where = answered.headers.get("location", "")
    until = time.monotonic() + 120
    while where.startswith("/jobs/") and site.ask(where).status == 200:
        assert time.monotonic() < until, site.ask(where).text
        time.sleep(0.2)


def test_every_page_is_drawn_and_has_its_picture(browser: Any, tmp_path: Path) -> None:
    kept = os.environ.get("PENSTOCK_PICTURES")
    place = Path("/tmp/shop") if kept else tmp_path  # paths are in the pictures
    if kept:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    secrets = {"SHOP_TOKEN": "right-token", "SHOP_KEY": "k-1234567"}
    site = Pages(place, **secrets, **warm_spark.environ()).enter()
    try:
        drawn(shop(site), browser, Path(kept) if kept else tmp_path / "pictures", bool(kept))
    finally:
        site.stop()


def drawn(site: Pages, browser: Any, folder: Path, kept: bool) -> None:
    others = folder if not kept else Path("/tmp/shop/pictures")  # to be looked at
    for each in (folder, others):
        each.mkdir(exist_ok=True)
    wrong: list[str] = []
    name, _, value = site.cookie.partition("=")
    for scheme, width in (("light", 1120), ("light", 380), ("dark", 1920)):
        context = browser.new_context(viewport={"width": width, "height": 720}, color_scheme=scheme)
        context.add_cookies([{"name": name, "value": value, "url": site.base}])
        page = context.new_page()
        console: list[str] = []
        page.on("console", lambda m, c=console: m.type == "verbose" or c.append(m.text))
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
            if kept and (scheme, width) == ("light", 1120):
                (folder / f"ui-{each}.png").write_bytes(small(made))
            elif kept:
                (others / f"ui-{each}-{scheme}-{width}.png").write_bytes(made)
        wrong += [f"console: {line}" for line in console]
        context.close()
    assert wrong == []


def test_the_pictures_of_the_documents_are_small_and_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    pictures = [*(docs / "images").glob("ui-*.png")]
    assert pictures and [p.name for p in pictures if p.stat().st_size > MOST_BYTES] == []
    text = (docs / "ui.md").read_text()
    assert [p.name for p in pictures if p.name not in text] == []
