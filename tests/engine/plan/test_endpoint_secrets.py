"""L10: what a connector changed in its configuration is secret in the runs that follow."""

import sys
from pathlib import Path

from penstock.config.load import parse_pipeline
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.specs.observer import NullObserver
from penstock.model.events import Control
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore

PIPELINE = """
version: "1.0"
pipeline: shop
source: {use: "singer:./tap", config: {renewal: old-value, host: h}}
destination: {use: parquet, config: {path: ./out}}
"""


def test_l10_what_a_tap_renewed_is_secret_whatever_it_is_called(tmp_path: Path) -> None:
    tap = tmp_path / "tap"
    tap.write_text(f"#!{sys.executable}\nraise SystemExit(2)\n")
    tap.chmod(0o755)
    pipeline, store = parse_pipeline(PIPELINE, {}), MemoryStore()
    lease = store.acquire("shop", this_holder("run"), 60)

    def end() -> SourceEndpoint:
        return SourceEndpoint(
            pipeline,
            lambda sink: resolve(
                SourceConnector, "singer:./tap", tmp_path, base=tmp_path, log=sink
            ),
            store,
            NullObserver(),
            save=lambda new: store.set_config_override(lease, "source", new.base_hash, new.config),
        )

    first = end()
    assert first.secrets() == []
    first.take(Control({"renewal": "new-value", "host": "h"}))
    assert first.secrets() == ["new-value"]
    assert end().secrets() == ["new-value"]
