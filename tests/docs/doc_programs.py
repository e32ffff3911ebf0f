"""Programs that the pages presuppose, as a reader might have written them."""

SHOP_SOURCE = """
import json, sys
from pathlib import Path

TEXT = {"type": ["null", "string"]}
ROW = {"type": "object", "properties": {
    "id": {"type": "integer"}, "shop": {"type": "integer"}, "number": {"type": "integer"},
    "name": TEXT, "email": TEXT, "updated_at": {"type": "string", "format": "date-time"},
    "created": TEXT, "price": TEXT, "age": {"type": "integer"}, "active": {"type": "boolean"},
    "country": TEXT, "zip": TEXT, "created_at": {"type": "string", "format": "date-time"},
    "amount": {"type": "number"}, "ordered_at": {"type": "string", "format": "date-time"},
    "payload": {"type": "object"},
    "lines": {"type": "array", "items": {"type": "object"}},
    "meta": {"type": "object", "properties": {"at": TEXT}}}}

def stream(name, **more):
    return {"name": name, "json_schema": ROW,
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_primary_key": [["id"]], **more}

STREAMS = [stream("users", source_defined_cursor=True, default_cursor_field=["updated_at"]),
    stream("orders", namespace="shop"), stream("events")]

def say(kind, **payload):
    type_ = {"connectionStatus": "CONNECTION_STATUS"}.get(kind, kind.upper())
    print(json.dumps({"type": type_, kind: payload}), flush=True)

def given(name):
    return json.loads(Path(sys.argv[sys.argv.index(name) + 1]).read_text())

match sys.argv[1]:
    case "spec":
        words = ("host", "password", "token", "start_date", "end_date")
        properties = {w: {"type": "string", "airbyte_secret": w == "token"} for w in words}
        properties["port"] = {"type": "integer"}
        say("spec", connectionSpecification={"type": "object", "properties": properties})
    case "check":
        say("connectionStatus", status="SUCCEEDED")
    case "discover":
        say("catalog", streams=STREAMS)
    case "read":
        config = given("--config")
        first, last = config.get("start_date", ""), config.get("end_date", "9")
        for asked in given("--catalog")["streams"]:
            found = asked["stream"]
            name = {k: found[k] for k in ("name", "namespace") if k in found}
            for n in range(1, 6):
                day = f"2026-01-0{n}T00:00:00Z"
                if first <= day <= last:
                    say("record", stream=name["name"], emitted_at=n, data={"id": n, "shop": 1,
                        "number": n, "name": f"n{n}", "email": f"{n}@x.io", "updated_at": day,
                        "created": day, "price": "1.25", "age": 30 + n, "active": n % 2 == 0,
                        "country": "AT", "zip": "1010", "created_at": "2024-01-01T00:00:00Z",
                        "amount": n / 2, "ordered_at": day, "payload": {"a": n},
                        "lines": [{"sku": "s", "amount": 1}], "meta": {"at": day}},
                        **{k: v for k, v in name.items() if k == "namespace"})
            say("state", type="STREAM", stream={"stream_descriptor": name,
                "stream_state": {"updated_at": "2026-01-05T00:00:00Z"}})
"""

# What source-faker of the registry publishes and sends, where a page is about something else.
FAKER_SOURCE = """
import json, sys
from datetime import datetime, timezone
from pathlib import Path

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
AT = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
MAYBE_AT = {**AT, "type": ["null", "string"]}

def words(names):
    return dict.fromkeys(names.split(), TEXT)

def whole(properties):
    return {"type": "object", "properties": properties}

USER = words("name title email telephone gender language academic_degree nationality occupation "
    "height blood_type")
ADDRESS = words("street_number street_name city state province postal_code country_code")
OF_ALL = {"id": INTEGER, "created_at": AT, "updated_at": AT}
ROWS = {
    "products": {**OF_ALL, **words("make model"), "year": INTEGER, "price": {"type": "number"}},
    "users": {**OF_ALL, **USER, "age": INTEGER, "weight": INTEGER, "address": whole(ADDRESS)},
    "purchases": {**OF_ALL, "user_id": INTEGER, "product_id": INTEGER, "added_to_cart_at": MAYBE_AT,
        "purchased_at": MAYBE_AT, "returned_at": MAYBE_AT}}
OPTIONS = {"count": {**INTEGER, "minimum": 1, "default": 1000}, "seed": {**INTEGER, "default": -1},
    "records_per_slice": {**INTEGER, "minimum": 1, "default": 1000},
    "always_updated": {"type": "boolean", "default": True},
    "parallelism": {**INTEGER, "minimum": 1, "default": 4}}
BORN = "2001-02-03T04:05:06+00:00"

def row(name, n, now):
    found = {"id": n, "created_at": BORN, "updated_at": now}
    if name == "products":
        return {**found, "make": "Mazda", "model": f"MX-{n}", "year": 2000 + n % 20, "price": n / 4}
    if name == "purchases":
        return {**found, "user_id": n, "product_id": 1 + n % 100, "added_to_cart_at": BORN,
            "purchased_at": BORN if n % 2 else None, "returned_at": None}
    return {**found, **{word: f"{word} {n}" for word in USER}, "email": f"user+{n}@example.com",
        "age": 16 + n % 50, "weight": 40 + n % 50, "address": {w: f"{w} {n}" for w in ADDRESS}}

def say(kind, type_=None, **payload):
    print(json.dumps({"type": type_ or kind.upper(), kind: payload}), flush=True)

def given(name):
    return json.loads(Path(sys.argv[sys.argv.index(name) + 1]).read_text())

match sys.argv[1]:
    case "spec":
        say("spec", documentationUrl="https://docs.airbyte.com/integrations/sources/faker",
            connectionSpecification={**whole(OPTIONS), "additionalProperties": True})
    case "check":
        say("connectionStatus", "CONNECTION_STATUS", status="SUCCEEDED")
    case "discover":
        say("catalog", streams=[{"name": name, "json_schema": whole(fields),
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True, "default_cursor_field": ["updated_at"],
            "source_defined_primary_key": [["id"]], "is_resumable": True}
            for name, fields in ROWS.items()])
    case "read":
        config, states = given("--config"), {}
        if "--state" in sys.argv:
            states = {each["stream"]["stream_descriptor"]["name"]: each["stream"]["stream_state"]
                for each in given("--state")}
        count, now = config.get("count", 1000), datetime.now(timezone.utc).isoformat()
        for name in (asked["stream"]["name"] for asked in given("--catalog")["streams"]):
            last = min(count, 100) if name == "products" else count
            if states.get(name) and not config.get("always_updated", True):
                last, now = 0, states[name]["updated_at"]
            for n in range(1, last + 1):
                say("record", stream=name, emitted_at=1, data=row(name, n, now))
            say("state", type="STREAM", stream={"stream_descriptor": {"name": name},
                "stream_state": {"seed": config.get("seed", -1), "updated_at": now}})
"""

TAP = """
import json, sys
from pathlib import Path

TEXT = {"type": ["null", "string"]}
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "name": TEXT, "email": TEXT,
    "updated_at": {"type": "string", "format": "date-time"},
    "address": {"type": "object", "properties": {"city": TEXT, "zip": TEXT}},
    "meta": {"type": "object", "properties": {"utm.source": TEXT}}}}

def catalog():
    return {"streams": [{"stream": s, "tap_stream_id": s, "schema": SCHEMA,
        "key_properties": ["id"], "metadata": [{"breadcrumb": [], "metadata": {
        "table-key-properties": ["id"], "inclusion": "available"}}]}
        for s in ("customers", "issues", "pull_requests")]}

def say(**message):
    print(json.dumps(message), flush=True)

if "--discover" in sys.argv:
    print(json.dumps(catalog()))
    sys.exit()
assert Path(sys.argv[sys.argv.index("--config") + 1]).exists()
named = sys.argv[sys.argv.index("--catalog") + 1] if "--catalog" in sys.argv else None
for s in json.loads(Path(named).read_text())["streams"] if named else catalog()["streams"]:
    root = next((m["metadata"] for m in s["metadata"] if not m["breadcrumb"]), {})
    if named and not (root.get("selected") or s["schema"].get("selected")):
        continue
    say(type="SCHEMA", stream=s["stream"], schema=SCHEMA, key_properties=["id"])
    for n in range(1, 4):
        say(type="RECORD", stream=s["stream"], record={"id": n, "name": f"n{n}",
            "email": f"{n}@x.io", "updated_at": f"2026-01-0{n}T00:00:00Z",
            "address": {"city": "Wien", "zip": "1010"}, "meta": {"utm.source": "a"}})
    say(type="STATE", value={"bookmarks": {s["stream"]: {"updated_at": "2026-01-03"}}})
"""

CONTACTS = """
from penstock.sdk import Connector, StreamWriter, run

ANY = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {},
    "additionalProperties": True}

def stream(name_):
    class Rows(StreamWriter):
        name, row, batch_size, options = name_, ANY, 100, ANY
        def write(self, rows):
            pass
    return Rows

run(Connector(description="CRM", credentials=ANY,
    streams=[stream(n) for n in ("contacts", "deals", "users", "query")]))
"""

COMPANY = """
from penstock.sdk import Connector, Enricher, run

ANY = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {},
    "additionalProperties": True}

class Company(Enricher):
    def enrich(self, row):
        return {**row, "company": row["email"].rpartition("@")[2], "score": row["id"] / 2}

run(Connector(description="companies", credentials=ANY, enrichment=Company))
"""

MELTANO = """
version: 1
plugins:
  extractors:
  - name: tap-gitlab
    pip_url: meltanolabs-tap-gitlab
    settings: [{ name: private_token, kind: password }]
    config: { projects: meltano/meltano, private_token: glpat-very-secret }
  loaders:
  - name: target-postgres
    pip_url: meltanolabs-target-postgres
    config: { host: localhost }
  mappers:
  - name: hide-emails
  utilities:
  - name: dbt-postgres
schedules:
- name: daily
  interval: '@daily'
  job: gitlab
jobs:
- name: gitlab
  tasks: [tap-gitlab hide-emails target-postgres]
"""
