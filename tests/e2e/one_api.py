"""One call of the Python interface in a process of its own, driven by one JSON argument; the report
on stdout.

Keys of the argument, besides those that ``e2e_harness.Place`` gives: ``verb`` (``read``: the stream
``s0``, incremental, under the name ``e2e``; ``write``: rows 1 to ``config.records`` as ``s0``),
``mode`` of a write, ``taken``: the file to which a read adds a line with the ``seq`` of its rows
before it closes them, ``bounds`` and ``plan`` as in ``one_run``.
"""

import json
import os
import sys
from typing import Any

import msgspec
import pyarrow as pa
from one_run import make_small

import penstock
from penstock.model.report import Report


def read(told: dict[str, Any]) -> Report:
    config = json.loads(told["options"]["config"])
    with penstock.read(
        told["source"], "s0", config=config, home=told["home"], name="e2e", incremental=True,
        progress=False,
    ) as found:  # fmt: skip
        with open(told["taken"], "a") as taken:
            taken.write(json.dumps(sorted(found.arrow()["seq"].to_pylist())) + "\n")
            taken.flush()
            os.fsync(taken.fileno())
        return found.report


def write(told: dict[str, Any]) -> Report:
    records = json.loads(told["options"]["config"])["records"]
    rows = pa.table({"id": range(1, records + 1), "seq": range(1, records + 1)})
    key = {"primary_key": ["id"]} if told["mode"] == "upsert" else {}
    return penstock.write(
        rows, told["destination"], "s0", mode=told["mode"], home=told["home"], name="e2e",
        progress=False, **key,
    )  # fmt: skip


def main() -> int:
    told = json.loads(sys.argv[1])
    make_small(told.get("bounds", {}), told.get("plan", {}))
    try:
        report = {"read": read, "write": write}[told["verb"]](told)
    except penstock.PenstockError as error:
        print(json.dumps({"error": error.as_dict()}))
        return error.exit_code
    print(msgspec.json.encode(report).decode())
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
