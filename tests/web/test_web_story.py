"""The whole way of a person who has never seen Penstock, in a browser: the real source-faker into
Delta, without a file and without a flag."""

from collections.abc import Callable
from typing import Any

import pytest
from web_harness import Pages

pytestmark = [pytest.mark.spark, pytest.mark.network, pytest.mark.dear]
LONG = 300_000


def test_a_demo_from_an_empty_folder_to_rows_in_delta(
    pages: Callable[..., Pages], browser: Any
) -> None:
    site = pages()
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    page.set_default_timeout(LONG)
    console: list[str] = []
    page.on("console", lambda m: console.append(f"{m.type}: {m.text}"))
    page.on("pageerror", lambda e: console.append(f"error: {e}"))
    page.goto(site.address)
    page.click("text=Find a connector >> nth=-1")
    page.fill("#words", "faker")
    page.click("button:has-text('Search')")
    page.click("li:has-text('airbyte:source-faker') >> text=Use")
    page.click("text=Make it")  # installs it
    page.wait_for_url("**/edit")
    file = next(site.folder.glob("*.yaml"))
    page.fill("[name='source:count']", "200")
    page.click("text=Save and check")
    page.wait_for_selector("text=Both ends answer")
    assert "count: 200" in file.read_text()
    page.click("main >> text=Streams >> nth=-1")
    page.click("text=Find streams")
    page.wait_for_selector("td:has-text('purchases')")
    page.check("[value=chosen][name=which]")
    page.uncheck("[aria-label='read purchases']")
    page.click("button.main:has-text('Save')")
    page.wait_for_selector(".said")
    page.click("nav.tabs >> text=Plan")
    page.click("text=Plan now")
    page.wait_for_selector("article:has-text('users')")
    assert "new table" in page.inner_text("article:has-text('users')")
    page.click("text=Run it")
    page.wait_for_url("**/runs/*")
    page.wait_for_selector(".figures .s-succeeded")
    assert "exactly-once" in page.inner_text("main")
    page.click("nav.tabs >> text=Rows")
    page.wait_for_selector("th:has-text('email'), th:has-text('price')")
    page.click("nav.tabs >> text=Rejects")
    page.wait_for_selector("text=No rejected rows")
    page.click("nav.tabs >> text=State")
    page.wait_for_selector("article:has-text('users')")
    page.click("nav.tabs >> text=Plan")
    page.click("text=Plan now")
    page.wait_for_selector("article:has-text('same columns')")
    assert (site.folder / "lake" / "users" / "_delta_log").is_dir()
    assert [line for line in console if not line.startswith("verbose")] == []
