"""``engine.plan.streams``: what is noted and what is refused."""

from pathlib import Path

from penstock.config.load import parse_pipeline
from penstock.engine.plan.streams import StreamRules, plan_streams
from penstock.engine.plan.unsupported import permissions_asked
from penstock.model.catalog import Catalog, Stream, StreamId
from penstock.protocols.airbyte.package import PACKAGE
from penstock.store.remembered import Remembered
from penstock.tables.contract import TableFormat
from penstock.tables.open import open_table

HEAD = "pipeline: p\nsource: { use: airbyte:source-x }\n"


def table(tmp_path: Path) -> TableFormat:
    return open_table("parquet", str(tmp_path), {})


def test_stream_that_the_source_no_longer_has_is_noted_without_a_list(tmp_path: Path) -> None:
    pipeline = parse_pipeline(HEAD + "destination: { use: 'parquet:./lake' }\n", {})
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    here, gone = StreamId(None, "here"), StreamId(None, "gone")
    plan = plan_streams(
        pipeline,
        Catalog((Stream(id=here, json_schema=schema),)),
        StreamRules(
            package=PACKAGE,
            destination=table(tmp_path),
            earlier=Remembered(),
            metadata=None,
            sync_id=1,
        ),
        known={here, gone},
        states=(),
        cores=1,
    )
    assert plan.gone == (gone,)
    assert any("no longer has the stream gone" in note for note in plan.notes)
    assert [s.id for s in plan.streams] == [here]


def test_l10_nullability_that_nobody_enforces_is_refused() -> None:
    text = HEAD + "destination: { use: 'parquet:./lake', schema_evolution: {%s} }\n"
    _, _, problems = permissions_asked(parse_pipeline(text % "nullability_change: fail", {}))
    assert len(problems) == 1 and "nullability_change: fail cannot be" in problems[0]
    assert permissions_asked(parse_pipeline(text % "nullability_change: allow", {}))[2] == []
    frames = (text % "nullability_change: fail").replace("airbyte:source-x", "./x.wasm")
    assert frames != text % "nullability_change: fail"
    assert permissions_asked(parse_pipeline(frames, {}))[2] == []
