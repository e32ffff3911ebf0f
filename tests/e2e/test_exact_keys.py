"""Keys are exact (L9): rows whose keys differ never become one row, whatever their column can hold.

The sources are written from the two specifications: an Airbyte stream and a Singer tap send their
records as JSON text, in which a number has as many digits as its author wrote."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pipelines import Ran, Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TAP = """
import json, sys
SCHEMA = {"type": "object", "properties": %(properties)r}
STREAM = {"tap_stream_id": "t", "stream": "t", "key_properties": %(key)r, "schema": SCHEMA}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [STREAM]}))
elif "--about" not in sys.argv:
    print(json.dumps({"type": "SCHEMA", **STREAM}))
    for text in %(records)r:
        print('{"type": "RECORD", "stream": "t", "record": ' + text + "}")
    print('{"type": "STATE", "value": {"at": %(state)r}}', flush=True)
"""
SOURCE = """
import json, sys
SCHEMA = {"type": "object", "properties": %(properties)r}
STREAM = {"name": "t", "json_schema": SCHEMA, "supported_sync_modes": ["incremental"],
          "source_defined_cursor": True,
          "source_defined_primary_key": [[name] for name in %(key)r]}
STATE = {"type": "STREAM", "stream": {"stream_descriptor": {"name": "t"},
                                      "stream_state": {"at": %(state)r}}}
if sys.argv[1] == "spec":
    print(json.dumps({"type": "SPEC", "spec": {"connectionSpecification": {}}}))
elif sys.argv[1] == "check":
    print(json.dumps({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}))
elif sys.argv[1] == "discover":
    print(json.dumps({"type": "CATALOG", "catalog": {"streams": [STREAM]}}))
else:
    for text in %(records)r:
        print('{"type": "RECORD", "record": {"stream": "t", "emitted_at": 1, "data": ' + text + "}}")
    print(json.dumps({"type": "STATE", "state": STATE}), flush=True)
"""  # noqa: E501
SCRIPTS = {"airbyte": SOURCE, "singer": TAP}
NUMBER, INTEGER, TEXT = ({"type": ["null", name]} for name in ("number", "integer", "string"))
TIME = {"type": ["null", "string"], "format": "date-time"}
CENTS = {"type": ["null", "number"], "multipleOf": 0.01}
BOTH = pytest.mark.parametrize(
    ("protocol", "format"), [("airbyte", "delta"), ("singer", "parquet")]
)


class Sender:
    """A source of one stream ``t`` with the properties ``key`` and ``v``."""

    def __init__(self, site: Site, protocol: str) -> None:
        self.site, self.protocol, self.state = site, protocol, 0

    def run(self, key: dict[str, Any], *keys: str, **parts: Any) -> Ran:
        """A run that sends a record for each of ``keys``, which are JSON text. ``v`` numbers the
        records over all runs."""
        first = self.state * 100
        self.state += 1
        texts = [f'{{"id": {k}, "v": {first + n}}}' for n, k in enumerate(keys)]
        return self.send({"id": key}, texts, **parts)

    def send(
        self, properties: dict[str, Any], texts: Sequence[str], key: Sequence[str] = ("id",),
        **parts: Any,
    ) -> Ran:  # fmt: skip
        script = self.site.folder / "source.py"
        told = {"properties": {**properties, "v": INTEGER}, "key": list(key), "records": texts}
        script.write_text(SCRIPTS[self.protocol] % {**told, "state": self.state})
        modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
        done = self.site.run(
            use=f"{self.protocol}:{sys.executable} {script}",
            defaults={**modes, **parts.pop("defaults", {})},
            **parts,
        )
        assert done.status == "succeeded", done.error
        return done

    def rows(self) -> dict[str, int]:
        """key, as plain text -> ``v``."""
        rows = [(_plain(r["id"]), r["v"]) for r in self.site.rows("t", "v")]
        assert len(dict(rows)) == len(rows), rows
        return dict(rows)

    def reasons(self) -> list[str]:
        return [reject["reason"] for reject in self.site.rejects()]


def _plain(value: Any) -> str:
    text = f"{value:f}" if type(value).__name__ == "Decimal" else str(value)
    return text.rstrip("0").rstrip(".") if "." in text and ":" not in text else text


@BOTH
def test_l9_numbers_that_a_double_takes_for_one_are_two_keys(
    site: Callable[..., Site], protocol: str, format: str
) -> None:
    sender = Sender(site(format), protocol)
    done = sender.run(
        NUMBER, "9007199254740993", "9007199254740992", "0.1", "0.100000000000000005",
        "1", "1.0", "1e0",
    )  # fmt: skip
    assert done.stream("t").rejected == 0
    found = {"9007199254740993": 0, "9007199254740992": 1, "0.1": 2, "0.100000000000000005": 3}
    assert sender.rows() == {**found, "1": 6}
    sender.run(NUMBER, "9007199254740993.0", "10e-1", "2", "-0.0", "0")
    assert sender.rows() == {**found, "9007199254740993": 100, "1": 101, "2": 102, "0": 104}


@BOTH
def test_l9_a_number_without_room_in_its_key_column_is_a_reject(
    site: Callable[..., Site], protocol: str, format: str
) -> None:
    sender = Sender(site(format), protocol)
    done = sender.run(NUMBER, "0.1", "0.1000000000000000055", "1e30", "2")
    assert sender.rows() == {"0.1": 0, "2": 3} and done.stream("t").rejected == 2
    assert all("exactly" in r and "--recreate" in r for r in sender.reasons())


@BOTH
def test_l9_a_key_of_numbers_as_text_has_room_for_all_and_is_one_key_in_every_spelling(
    site: Callable[..., Site], protocol: str, format: str
) -> None:
    sender, text = Sender(site(format), protocol), {"types": {"id": "string"}}
    done = sender.run(NUMBER, "0.1", "0.1000000000000000055", "1e30", "2", defaults=text)
    assert done.stream("t").rejected == 0
    done = sender.run(NUMBER, "0.10", "10E29", "2.0", '"2"', "2e0", defaults=text)
    found = {"0.1": 100, "0.1000000000000000055": 1, "1" + "0" * 30: 101, "2": 104}
    assert sender.rows() == found and done.stream("t").rejected == 0
    sender.run(NUMBER, "20e-1", recreate=True)
    assert sender.rows() == {"2": 200}


@BOTH
def test_l9_keys_stay_exact_while_a_stream_is_appended(
    site: Callable[..., Site], protocol: str, format: str
) -> None:
    sender, append = Sender(site(format), protocol), {"destination_sync_mode": "append"}
    sender.run(NUMBER, "9007199254740993", "1")
    sender.run(NUMBER, "9007199254740995", "7", defaults=append)
    done = sender.run(NUMBER, "9007199254740993", "9007199254740992", "9007199254740995.0")
    found = {"1": 1, "7": 101}
    for n, key in enumerate(("9007199254740993", "9007199254740992", "9007199254740995")):
        found[key] = 200 + n
    assert sender.rows() == found and done.stream("t").rejected == 0


@BOTH
def test_l9_times_that_differ_in_nanoseconds_never_become_one_row(
    site: Callable[..., Site], protocol: str, format: str
) -> None:
    sender = Sender(site(format), protocol)
    at = "2024-05-01T12:00:00.123456"
    done = sender.run(TIME, f'"{at}789Z"', f'"{at}000Z"', f'"{at}790Z"', '"soon"')
    assert len(sender.rows()) == 1 and done.stream("t").rejected == 3
    assert all("--recreate" in reason for reason in sender.reasons())
    sender.run(TIME, f'"{at}Z"')
    assert list(sender.rows().values()) == [100]


@BOTH
def test_l9_decimals_past_the_scale_never_become_one_row(
    site: Callable[..., Site], protocol: str, format: str
) -> None:
    sender = Sender(site(format), protocol)
    done = sender.run(CENTS, "1.01", "1.010", "1234567890123456.014", "1234567890123456.01")
    assert sender.rows() == {"1.01": 1, "1234567890123456.01": 3}
    assert done.stream("t").rejected == 1 and "--recreate" in sender.reasons()[0]


@BOTH
def test_l9_a_key_whose_type_changed_keeps_its_column_and_the_stream_goes_on(
    site: Callable[..., Site], protocol: str, format: str
) -> None:
    """Until now the whole load failed, and the stream with it, run after run."""
    sender = Sender(site(format), protocol)
    sender.run(INTEGER, "1", "2")
    done = sender.run(TEXT, '"2"', '"A7"', '"3"')
    assert sender.rows() == {"1": 0, "2": 100, "3": 102} and done.stream("t").rejected == 1
    assert "--recreate" in sender.reasons()[0]
    done = sender.run(NUMBER, "2.0", "2.5", "9007199254740993", "9007199254740992")
    assert done.stream("t").rejected == 1
    found = {"9007199254740993": 202, "9007199254740992": 203}
    assert sender.rows() == {"1": 0, "2": 200, "3": 102, **found}
    sender.run(NUMBER, "2.5", "9007199254740993", recreate=True)
    assert sender.rows() == {"2.5": 300, "9007199254740993": 301}


def test_l9_a_table_with_a_double_as_its_key_goes_on_with_the_keys_that_it_holds(
    site: Callable[..., Site],
) -> None:
    """As the tables are that the code before made of a number: its home has that type too."""
    sender = Sender(site("delta"), "airbyte")
    sender.run(NUMBER, "1", "9007199254740992", "0.1", defaults={"types": {"id": "number"}})
    done = sender.run(
        NUMBER, "1.0", "9007199254740993", "0.1", "0.1000000000000000055", "2.5",
        "0.10000000000000000555",
    )  # fmt: skip
    assert done.stream("t").rejected == 3
    assert sender.rows() == {"9007199254740992": 1, "1": 100, "0.1": 102, "2.5": 104}
    assert all("--recreate" in reason for reason in sender.reasons())
    sender.run(NUMBER, "9007199254740993", "9007199254740992", recreate=True)
    assert sender.rows() == {"9007199254740993": 200, "9007199254740992": 201}


def test_l9_nested_and_composite_keys_are_exact(site: Callable[..., Site]) -> None:
    sender = Sender(site("parquet"), "airbyte")
    inside = {"type": "object", "properties": {"id": NUMBER, "at": TIME}}
    texts = [
        '{"k": {"id": 9007199254740993, "at": "2024-05-01T00:00:00Z"}, "n": "a", "v": 1}',
        '{"k": {"id": 9007199254740992, "at": "2024-05-01T00:00:00.000000001Z"}, "n": "a", "v": 2}',
        '{"k": {"id": 9007199254740992, "at": "2024-05-01T00:00:00Z"}, "n": "b", "v": 3}',
        '{"k": {"id": 9007199254740992.0, "at": "2024-05-01T00:00:00Z"}, "n": "b", "v": 4}',
        '{"k": {"id": 7e300, "at": null}, "n": "c", "v": 5}',
        '{"k": 7, "n": "c", "v": 6}',
    ]
    keys: dict[str, Any] = {"primary_key": [["k", "id"], ["n"]]}
    done = sender.send({"k": inside, "n": TEXT}, texts, key=[], defaults=keys)
    assert [row["v"] for row in sender.site.rows("t", "v")] == [1, 2, 4]
    assert done.stream("t").rejected == 2
    keys = {"primary_key": [["k", "at"], ["n"]]}
    done = sender.send({"k": inside, "n": TEXT}, texts[:2], key=[], defaults=keys)
    assert done.stream("t").rejected == 1


@pytest.mark.parametrize("strict", [False, True])
def test_l9_a_transform_is_not_given_a_key_that_lost_digits(
    site: Callable[..., Site], strict: bool
) -> None:
    sender = Sender(site("parquet"), "singer")
    query = {"use": "transform-sql", "config": {"query": "SELECT id, v FROM input"}}
    parts: dict[str, Any] = {"transforms": [query], "strict": strict}
    done = sender.run(NUMBER, "9007199254740992", "9007199254740993", "7", **parts)
    assert sender.rows() == {"9007199254740992": 0, "7": 2}
    assert done.stream("t").rejected == 1 and "--recreate" in sender.reasons()[0]
