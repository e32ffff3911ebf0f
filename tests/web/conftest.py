"""The real server of ``penstock ui`` in a process of its own, and a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from web_harness import Pages, chromium_missing


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Callable[..., Pages]]:
    """``pages(**environ)``: starts the server for the folder ``tmp_path/"pipelines"``."""
    started: list[Pages] = []

    def start(*options: str, forked: bool = True, **environ: str) -> Pages:
        started.append(Pages(tmp_path, *options, forked=forked, **environ))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    if (missing := chromium_missing()) is not None:
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield found
        found.close()
