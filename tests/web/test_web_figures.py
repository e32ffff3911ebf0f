"""What the pages cost: bytes, memory, a folder of 1,000 pipelines."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from web_harness import Pages

ONCE = ("style.css", "ui.js", "htmx.min.js", "icon.svg")
SLACK = 4  # for a processor with other work; bench/web_pages.py measures what a person waits


def spent(site: Pages) -> float:
    """Returns the processor seconds of the program of the pages so far."""
    fields = Path(f"/proc/{site.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(site: Pages) -> int:
    """Returns the kB of memory that the program of the pages has."""
    status = Path(f"/proc/{site.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def test_the_first_page_is_small_and_comes_soon(pages: Callable[..., Pages]) -> None:
    site = pages(forked=False).enter()
    text = site.ask("/").text
    assert spent(site) < 1.0 * SLACK
    size = len(text) + sum(len(site.ask(f"/static/{name}").text) for name in ONCE)
    assert size < 150_000
    assert memory(site) < 80_000
    for address in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert address.startswith(("/", "#")), address  # nothing is fetched from elsewhere


def test_a_thousand_pipelines_are_listed_page_by_page(pages: Callable[..., Pages]) -> None:
    site = pages(forked=False).enter()
    for number in range(1000):
        site.write(f"p{number:04}.yaml", region="eu")
    site.ask("/")
    before = spent(site)
    answered = site.ask("/?page=3")
    assert spent(site) - before < 0.3 * SLACK
    assert answered.text.count("<article") == 24 and "Next page" in answered.text


def test_ctrl_c_ends_the_pages_at_once(pages: Callable[..., Pages]) -> None:
    site = pages(forked=False).enter()
    assert site.ask("/").status == 200
    site.process.send_signal(signal.SIGINT)
    assert site.process.wait(10) == 0


def test_ten_thousand_streams_stay_usable(pages: Callable[..., Pages]) -> None:
    site = pages(forked=False).enter()
    file = site.write(region="eu", token="x", auth={"kind": "open"}, many=10_000)
    job = site.ask("/p/shop.yaml/discover", "POST", {}, origin=site.base).headers["location"]
    for _ in range(200):
        if job.endswith("/streams") or "HX-Redirect".lower() in site.ask(f"{job}/part").headers:
            break
        time.sleep(0.1)
    before = spent(site)
    page = site.ask("/p/shop.yaml/streams?words=s0*")
    assert "10000 of 10002" in page.text and page.text.count('name="row"') == 50
    assert memory(site) < 100_000  # without any stream it is 80,000, as discovery loads modules
    assert spent(site) - before < 1.0 * SLACK
    form = {"mark": page.text.partition('name="mark" value="')[2][:64], "words": "s0*",
            "which": "chosen", "do": "bulk", "bulk_destination_sync_mode": "append",
            "bulk_chosen": "yes"}  # fmt: skip
    saved = site.ask("/p/shop.yaml/streams", "POST", form, origin=site.base)
    assert saved.status == 303, saved.text
    assert file.read_text().count("destination_sync_mode: append") == 10_000
    site.ask("/p/shop.yaml/streams")  # reads the file, which takes seconds, once
    before = spent(site)
    assert site.ask("/p/shop.yaml/streams?page=100&words=s").status == 200
    assert spent(site) - before < 0.5 * SLACK
