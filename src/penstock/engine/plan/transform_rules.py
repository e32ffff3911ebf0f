"""Identifies the rules by which a model's transforms leave out rows, so that a run can detect that
an earlier run had others.

Pure. Neighbours: ``engine.query.model_diff`` keeps the identifier with the rows sent;
``stream_plan.left_out_unknown`` detects when it is unknown which rows are left out.
"""

import hashlib
import re
from collections.abc import Sequence

import msgspec

from penstock.engine.plan.stream_plan import StreamRules, left_out_unknown
from penstock.engine.specs.plan import PlannedStream
from penstock.transforms.open import SQL

_CHANGING = re.compile(
    r"\b(now|current_date|current_time|current_timestamp|today|random|uuid)\b", re.IGNORECASE
)
"""Functions whose result differs in each run."""


def transform_rules(streams: Sequence[PlannedStream], rules: StreamRules) -> str | None:
    """Returns the identifier of the rules. It differs in each run where a query uses the time or
    random values. Empty: nothing leaves out rows; None: it is unknown which rows are left out."""
    if any(left_out_unknown(stream) for stream in streams):
        return None
    transforms = [t for t in rules.transforms if t.launch is None]
    if not transforms:
        return ""
    found = [(t.use, t.config, t.on_failure, t.v4) for t in transforms]
    name = hashlib.sha256(msgspec.json.encode(found, order="deterministic"))
    queries = (str(t.config.get("query")) for t in transforms if t.use == SQL)
    if any(_CHANGING.search(query) for query in queries):
        name.update(str(rules.sync_id).encode())
    return name.hexdigest()[:16]
