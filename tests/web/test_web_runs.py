"""Runs from the pages, on a real Spark: seen live, reloaded, through the death of the server,
stopped; a reject found; a run of the command line seen too."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web_harness import KEPT, Pages

import warm_spark

pytestmark = [pytest.mark.spark, pytest.mark.dear]
LONG = 120_000
READ = ".figures span:has-text('rows read') b:not(:text-is('0'))"


def opened(site: Pages, browser: Any) -> Any:
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    page.set_default_timeout(LONG)
    page.goto(site.address)
    page.wait_for_url(f"{site.base}/")
    return page


def test_a_run_goes_on_without_the_page_and_without_the_server(
    pages: Callable[..., Pages], browser: Any
) -> None:
    site = pages(**warm_spark.environ())
    site.write(region="eu", token="${T:-x}", auth={"kind": "open"}, rows=60, delay=0.1)
    page = opened(site, browser)
    page.goto(f"{site.base}/p/shop.yaml/plan")
    page.click("nav.tabs >> text=Run >> nth=-1")
    page.wait_for_url("**/runs/*")
    address = page.url.removeprefix(site.base)
    page.wait_for_selector(READ)  # live
    page.reload()
    page.wait_for_selector(READ)
    page.wait_for_selector("text=Stop it")
    page.wait_for_selector("text=Now: the source is read")
    assert {"prepare", "extract and load"} <= {*page.locator("table.times th").all_inner_texts()}
    # orders is read before people: its state comes while the run goes on
    page.wait_for_selector("tr:has(td:text-is('orders')) td:nth-child(7):text-is('1')")
    site.kill()
    page.wait_for_selector("#trouble:has-text('The run goes on')")
    again = pages(**warm_spark.environ())
    page = opened(again, browser)
    page.goto(again.base + address)
    page.wait_for_selector(".figures .s-running")
    page.wait_for_selector(".figures .s-succeeded")  # by itself, once it has ended
    said = page.inner_text("main")
    assert "exactly-once" in said and "reading orders" in said
    assert "Where its time went" in said

    page.click("nav >> text=Pipelines")
    page.wait_for_selector("svg.spark rect", state="attached")
    assert page.locator("svg.spark rect").count() == 1
    page.goto(f"{again.base}/p/shop.yaml/rejects?stream=orders")
    page.wait_for_selector("td:has-text('null')")
    assert page.locator("tbody tr").count() == 1
    with page.expect_download() as saved:
        page.click("text=Download as CSV")
    lines = Path(saved.value.path()).read_text().splitlines()
    assert len(lines) == 2 and lines[0].startswith("run,stream,reason")
    with page.expect_download() as saved:
        page.click("text=as JSON")
    (reject,) = json.loads(Path(saved.value.path()).read_text())
    assert (reject["stream"], reject["field"]) == ("orders", "id")
    page.goto(f"{again.base}/p/shop.yaml/rows")
    page.wait_for_selector("th:has-text('name')")
    assert page.locator("tbody tr").count() == 20
    assert "<i>row</i>" in page.inner_text("tbody")  # text, no markup
    assert '"changes":[]' in page.inner_text("tbody")  # JSON
    page.goto(f"{again.base}/p/shop.yaml/state")
    page.wait_for_selector("article:has-text('orders')")
    page.click("article:has-text('orders') >> summary")
    page.click("article:has-text('orders') >> text=Forget it")
    page.wait_for_selector("text=It reads from the start")
    page.click("text=Do it")
    page.wait_for_selector(".said")
    assert page.locator("article").count() == 1
    page.goto(f"{again.base}/p/shop.yaml/plan")
    page.click("text=Plan now")
    page.wait_for_selector("article:has-text('orders')")
    assert "same columns" in page.inner_text("article:has-text('orders')")


def test_a_run_of_the_command_line_is_seen_and_stopped(
    pages: Callable[..., Pages], browser: Any, tmp_path: Path
) -> None:
    site = pages(**warm_spark.environ())
    file = site.write(region="eu", token="x", auth={"kind": "open"}, rows=3000, delay=0.1)
    env = {k: v for k, v in os.environ.items() if k in KEPT}
    env |= {"PENSTOCK_HOME": str(site.home), **warm_spark.environ()}
    words = [sys.executable, "-m", "penstock", "run", str(file), "--json"]
    run = subprocess.Popen(words, env=env, cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        page = opened(site, browser)
        for _ in range(120):
            page.goto(f"{site.base}/runs")
            if page.locator("tbody tr").count():
                break
            page.wait_for_timeout(500)
        page.click("tbody a")
        page.wait_for_selector(READ)
        page.click("text=Stop it")
        page.wait_for_selector(".figures .s-cancelled")
        assert run.wait(60) == 7
    finally:
        run.kill()
        run.communicate()


def test_seven_tabs_of_a_run_leave_the_browser_free_and_a_killed_run_says_so(
    pages: Callable[..., Pages], browser: Any
) -> None:
    """A browser has six connections for a server: a page that is followed keeps one."""
    site = pages(**warm_spark.environ())
    site.write(region="eu", token="x", auth={"kind": "open"}, rows=3000, delay=0.1)
    page = opened(site, browser)
    page.goto(f"{site.base}/p/shop.yaml/runs")
    page.click("nav.tabs >> text=Run >> nth=-1")
    page.wait_for_url("**/runs/*")
    page.wait_for_selector(READ)
    tabs = [page.context.new_page() for _ in range(7)]
    for tab in tabs:
        tab.set_default_timeout(30_000)
        tab.goto(page.url, wait_until="domcontentloaded")
    other = page.context.new_page()
    other.set_default_timeout(10_000)
    other.goto(f"{site.base}/machine")
    for tab in tabs:  # each is followed, the later ones less often
        before = tab.inner_text(READ)
        for _ in range(60):
            if tab.inner_text(READ) != before:
                break
            tab.wait_for_timeout(250)
        assert tab.inner_text(READ) != before
        tab.close()

    launched = next((site.home / "ui").glob("*/launch.json"))
    os.kill(json.loads(launched.read_text())["pid"], signal.SIGKILL)
    page.wait_for_selector(".figures .s-failed")
    assert "What to do" in page.inner_text("main")
    assert page.locator("text=Run again").count() >= 1
    page.goto(f"{site.base}/launch/{launched.parent.name}")
    said = page.inner_text("main")
    assert "failed" in said or "The process has ended" in said


def test_a_spark_is_started_for_the_next_run_and_stopped(
    pages: Callable[..., Pages], tmp_path: Path
) -> None:
    cache = warm_spark.cache_in(tmp_path / "cache")  # no Spark of other tests is there
    site = pages(**{**warm_spark.environ(), "XDG_CACHE_HOME": str(cache)}).enter()
    assert "Start one now" in site.ask("/machine").text
    site.ask("/machine/spark/start", "POST", {}, origin=site.base)
    try:
        deadline = time.monotonic() + 120
        while "<td>idle" not in (shown := site.ask("/machine").text):
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)
        assert "Start one now" not in shown
    finally:
        site.ask("/machine/spark/stop", "POST", {}, origin=site.base)
    assert "Start one now" in site.ask("/machine").text
