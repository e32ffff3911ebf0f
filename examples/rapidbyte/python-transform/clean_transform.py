"""A transform of rows: lower-cases a column, drops rows where another is null, and puts aside those
that break a rule (a column below its minimum), as the pipeline's ``on_data_error`` says: ``dlq`` to
the rejects, ``skip`` away, ``fail`` ends the run."""

import json

from rapidbyte_guest import host
from rapidbyte_guest.faults import fault
from wit_world import exports

CONFIG = {}  # the bindings make a Transform for each call


class Transform(exports.Transform):
    def open(self, config_json):
        CONFIG.update(json.loads(config_json))
        return 1

    def validate(self, session):
        return host.success("the rules can be read")

    def close(self, session):
        pass

    def run(self, session, request):
        context = json.loads(request.stream_context_json)
        rows_in = rows_out = size_in = size_out = frames = 0
        for batches, length in host.frames():
            for columns in batches:
                cleaned = clean(columns, context)
                rows_in += len(columns[0].values)
                rows_out += len(cleaned[0].values)
                if cleaned[0].values:
                    size_out += host.emit(cleaned)
            size_in, frames = size_in + length, frames + 1
        host.count("rows_dropped", rows_in - rows_out)
        return host.transform_summary(rows_in, rows_out, size_in, size_out, frames)


def clean(columns, context):
    by_name = {column.name: column for column in columns}
    kept = range(len(columns[0].values))
    if "required" in CONFIG:
        values = one(by_name, CONFIG["required"]).values
        kept = [i for i in kept if values[i] is not None]
    if "minimum" in CONFIG:
        kept = above_minimum(columns, one(by_name, CONFIG["minimum"]["column"]), kept, context)
    out = [column._replace(values=[column.values[i] for i in kept]) for column in columns]
    if "lowercase" in CONFIG:
        place = columns.index(one(by_name, CONFIG["lowercase"]))
        if out[place].type not in ("utf8", "large_utf8", "null"):
            raise fault("schema", "NO_TEXT", f"column {CONFIG['lowercase']} is no text")
        lowered = [v if v is None else v.lower() for v in out[place].values]
        out[place] = out[place]._replace(values=lowered)
    return out


def above_minimum(columns, column, kept, context):
    least = CONFIG["minimum"]["value"]
    bad = {i for i in kept if column.values[i] is not None and column.values[i] < least}
    policy = (context.get("policies") or {}).get("on_data_error", "fail")
    for i in sorted(bad):
        message = f"{column.name} is {column.values[i]}, below {least}"
        if policy == "fail":
            raise fault("data", "BELOW_MINIMUM", message, scope="record")
        if policy == "dlq":
            record = {c.name: c.values[i] for c in columns}
            host.dead_letter(context["stream_name"], record, message)
    return [i for i in kept if i not in bad]


def one(by_name, wanted):
    if wanted not in by_name:
        raise fault("schema", "NO_SUCH_COLUMN", f"the rows have no column {wanted}")
    return by_name[wanted]
