"""L11: the pipeline's ``timeouts.start`` bounds each end's question for its spec."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.config.home import Home
from penstock.config.load import parse_pipeline
from penstock.connectors.connector import SPEC_TIMEOUTS, RunnableConnector
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.open_source import source_of
from penstock.engine.specs.observer import NullObserver
from penstock.errors import PenstockError
from penstock.store.memory import MemoryStore

PIPELINE = """
version: "1.0"
pipeline: shop
source: {{use: "airbyte:{command}", config: {{}}}}
destination: {{use: "{protocol}:{command}", config: {{}}}}
timeouts: {{{bounds}}}
"""


def ends(tmp_path: Path, seconds: float, bounds: str, protocol: str) -> list[RunnableConnector]:
    """Both ends of a pipeline whose connectors answer after ``seconds``."""
    file = tmp_path / "slow.py"
    spec = '{"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}}'
    file.write_text(f"import time\ntime.sleep({seconds})\nprint({spec!r})\n")
    command = f"{sys.executable} {file}"
    text = PIPELINE.format(command=command, bounds=bounds, protocol=protocol)
    pipeline, store, home = parse_pipeline(text, {}), MemoryStore(), Home(tmp_path / "home")
    how: dict[str, Any] = {"save": lambda new: None}
    source = source_of(pipeline, home, store, NullObserver(), **how)
    destination = DestinationEndpoint(pipeline, home, store, NullObserver(), **how)
    return [source.connector, destination.connector]


@pytest.mark.parametrize("protocol", ["airbyte", "syncmaven"])
def test_l11_a_spec_that_is_late_is_not_waited_for(tmp_path: Path, protocol: str) -> None:
    for end in ends(tmp_path, 30, "start: 1s", protocol):
        began = time.monotonic()
        with pytest.raises(PenstockError) as caught:
            end.spec()
        assert time.monotonic() - began < 15
        assert caught.value.code in (f"{end.ROLE}.timeout", f"{end.ROLE}.start_timeout")


def test_a_spec_is_given_the_start_that_the_pipeline_gives(tmp_path: Path) -> None:
    for end in ends(tmp_path, 2, "start: 10m, total: 1s", "airbyte"):
        assert end.spec().config_schema == {"type": "object"}


def test_without_a_pipeline_a_spec_has_the_usual_bounds(tmp_path: Path) -> None:
    for end in ends(tmp_path, 0, "start: 10m", "airbyte"):
        assert end._spec_timeouts.start == end._spec_timeouts.total == 600  # pyright: ignore
    assert SPEC_TIMEOUTS.start == SPEC_TIMEOUTS.total == 300
