"""``engine.plan.unsupported``: what a pipeline asks for and nobody enforces is refused (L10)."""

from penstock.config.load import parse_pipeline
from penstock.engine.plan.unsupported import permissions_asked

HEAD = "pipeline: p\nsource: { use: airbyte:source-x }\n"


def test_l10_nullability_that_nobody_enforces_is_refused() -> None:
    text = HEAD + "destination: { use: 'parquet:./lake', schema_evolution: {%s} }\n"
    _, _, problems = permissions_asked(parse_pipeline(text % "nullability_change: fail", {}))
    assert len(problems) == 1 and "nullability_change: fail cannot be" in problems[0]
    assert permissions_asked(parse_pipeline(text % "nullability_change: allow", {}))[2] == []
    frames = (text % "nullability_change: fail").replace("airbyte:source-x", "./x.wasm")
    assert frames != text % "nullability_change: fail"
    assert permissions_asked(parse_pipeline(frames, {}))[2] == []
