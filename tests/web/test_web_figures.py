"""What the pages cost: bytes, memory, a folder of 1,000 pipelines."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from web_harness import Pages

ONCE = ("style.css", "ui.js", "htmx.min.js", "icon.svg")
SLACK = 4  # for a machine with other work: the aims are 0.3 s and 1 s


def test_the_first_page_is_small_and_comes_soon(pages: Callable[..., Pages]) -> None:
    began = time.monotonic()
    site = pages().enter()
    text = site.ask("/").text
    assert time.monotonic() - began < 1.0 * SLACK
    size = len(text) + sum(len(site.ask(f"/static/{name}").text) for name in ONCE)
    assert size < 150_000
    status = Path(f"/proc/{site.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found is not None and int(found[1]) < 80_000  # kB
    for address in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert address.startswith(("/", "#")), address  # nothing is fetched from elsewhere


def test_a_thousand_pipelines_are_listed_page_by_page(pages: Callable[..., Pages]) -> None:
    site = pages().enter()
    for number in range(1000):
        site.write(f"p{number:04}.yaml", region="eu")
    site.ask("/")
    began = time.monotonic()
    answered = site.ask("/?page=3")
    assert time.monotonic() - began < 0.3 * SLACK
    assert answered.text.count("<article") == 24 and "Next page" in answered.text


def test_ctrl_c_ends_the_pages_at_once(pages: Callable[..., Pages]) -> None:
    site = pages().enter()
    assert site.ask("/").status == 200
    site.process.send_signal(signal.SIGINT)
    assert site.process.wait(10) == 0
