"""The whole way of a person who has never seen Penstock, in a browser, without a file or a flag:
the real source-faker into Delta; and of one whose source needs a secret and has bad rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web_harness import Pages

import warm_spark

Start = Callable[..., Pages]
LONG = 240_000
pytestmark = [pytest.mark.spark, pytest.mark.dear]


class Visitor:
    """A person at a browser: clicks on what the pages show, and knows no address."""

    def __init__(self, site: Pages, browser: Any) -> None:
        self.page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        self.page.set_default_timeout(LONG)
        self.console: list[str] = []
        self.page.on("console", lambda m: m.type == "verbose" or self.console.append(m.text))
        self.page.on("pageerror", lambda e: self.console.append(f"error: {e}"))
        self.page.goto(site.address)

    def sees(self, selector: str) -> str:
        """Waits for what should come, and returns its text; a fault that comes instead is shown at
        once."""
        found = self.page.locator(selector)
        found.or_(self.page.locator("main .fault")).first.wait_for()
        assert found.count(), self.page.inner_text("main")
        return found.first.inner_text()

    def to(self, tab: str) -> None:
        self.page.click(f"nav.tabs >> a:text-is('{tab}')")

    def saves(self) -> None:
        self.page.click("button.main:text-is('Save')")
        self.sees(".said")

    def runs(self) -> str:
        """Runs the pipeline, watches it to its end, and returns what the page shows."""
        self.page.click("nav.tabs >> button:text-is('Run')")
        self.page.wait_for_url("**/runs/*")
        self.sees(".figures .s-succeeded, .figures .s-partial")
        return self.page.inner_text("main")


@pytest.mark.network
def test_a_demo_from_an_empty_folder_to_rows_in_delta(pages: Start, browser: Any) -> None:
    site = pages(**warm_spark.environ())
    you = Visitor(site, browser)
    page = you.page
    page.click("main >> text=Find a connector")
    page.fill("#words", "faker")
    page.click("button:text-is('Search')")
    page.click("li:has-text('airbyte:source-faker') >> text=Use")
    page.click("text=Make it")  # installs it
    you.sees("#editor")
    file = site.folder / "faker.yaml"
    page.click("summary:has-text('optional field')")
    page.fill("[name='source:count']", "200")
    page.click("text=Save and check")
    you.sees("text=Both ends answer")
    assert "count: 200" in file.read_text()

    page.click("main >> a:text-is('Streams')")
    page.click("text=Find streams")
    you.sees("td:has-text('purchases')")
    page.check("[value=chosen][name=which]")
    page.uncheck("[aria-label='read purchases']")
    you.saves()
    assert "streams: [products, users]" in file.read_text()

    you.to("Plan")
    page.click("text=Plan now")
    assert "new table" in you.sees("article:has-text('users')")
    shown = you.runs()
    assert "exactly-once" in shown and "users" in shown and "purchases" not in shown
    you.to("Rows")
    you.sees("th:text-is('price'), th:text-is('email')")
    you.to("Rejects")
    you.sees("text=No rejected rows")
    you.to("State")
    you.sees("article:has-text('users')")
    you.to("Plan")
    page.click("text=Plan now")
    assert "same columns" in you.sees("article:has-text('users')")
    assert (site.folder / "lake" / "users" / "_delta_log").is_dir()
    page.click("nav >> text=Pipelines")
    card = you.sees("article:has-text('faker')")
    assert "delta:./lake" in card and "succeeded" in card
    assert you.console == []


def test_a_secret_a_bad_row_and_a_state_that_is_moved(pages: Start, browser: Any) -> None:
    site = pages(**warm_spark.environ())
    you = Visitor(site, browser)
    page = you.page
    page.click("text=Name a connector")
    page.fill("#source", site.source)
    page.fill("#destination", "parquet:./lake")
    page.fill("#name", "shop")
    page.click("text=Make it")
    you.sees("#editor")
    page.select_option("[name='source:region']", '"eu"')
    page.fill("[name='source:token']", "right-token")
    page.select_option("[name='source:auth#form']", "1")
    page.click("text=Save and find streams")
    you.sees("td:has-text('people')")
    page.check("[value=chosen][name=which]")
    page.uncheck("[aria-label='read people']")
    page.select_option("[name='destination_sync_mode orders']", "append_dedup")
    you.saves()
    shown = you.runs()
    assert "right-token" not in shown and "./lake/orders" in shown

    you.to("Rejects")  # the row whose key is NULL
    assert you.sees("tbody tr td:nth-child(4)") == "id"
    assert '"name": "<i>row</i>"' in page.inner_text("tbody code.raw").replace('":"', '": "')
    page.click("text=Only see whether they would pass")
    page.wait_for_url("**/launch/*")
    you.sees("text=nothing was written")
    assert "rejected" in page.inner_text("main thead")
    you.to("Rejects")
    assert page.locator("text=in a later run").count() == 0
    page.click("text=Try them again")
    page.wait_for_url("**/runs/*")
    you.sees(".figures .s-succeeded, .figures .s-partial, .figures .s-failed")
    you.to("Rejects")
    assert you.sees("text=in a later run")

    you.to("State")
    with page.expect_download() as saved:
        page.click("text=Export")
    exported = Path(saved.value.path()).read_text()
    article = "article:has-text('orders')"
    assert '"id": 10' in you.sees(f"{article} pre")
    page.click(f"{article} >> summary")
    page.fill(f"{article} [name=state]", '{"id": 4}')
    page.click(f"{article} >> button:text-is('Set')")
    assert "puts this state over the saved one" in page.inner_text("main")
    page.click("text=Do it")
    you.sees(".said")
    assert '"id": 4' in you.sees(f"{article} pre")
    page.click("text=Forget the whole state")
    page.click("text=Do it")
    you.sees(".said")
    page.fill("main > form [name=state]", exported)
    page.click("button:text-is('Import')")
    page.click("text=Do it")
    you.sees(".said")
    assert '"id": 10' in you.sees(f"{article} pre")
    assert json.loads(exported)[0]["type"] == "STREAM"
    assert page.locator("h2:has-text('What was saved when')").count()
    assert you.console == []
    assert "right-token" not in (site.folder / "shop.yaml").read_text()
