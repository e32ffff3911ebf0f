"""The form of a pipeline file over HTTP: what comes back as it was drawn leaves the file as it is,
byte for byte, and a change touches its own lines."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from page_forms import PageForms
from web_harness import SOURCE, Pages

from penstock.config.home import Home
from penstock.engine.log.log import FileLog
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import PartRef, Segment, SegmentId, StreamSlice, WriteDisposition
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.web.file_edit import values_of

Start = Callable[..., Pages]
ADDRESS = "/p/shop.yaml/edit"
# What stands under source.config: the schema's own kinds, other kinds, references, odd writing.
# ruff: noqa: E501
CONFIGS = {
    "as the schema has it": "region: eu\ntoken: ${T}\nrows: 10\nauth: {kind: open, note: x}\ntags: [a, b]",
    "numbers as text": "region: 'eu'\ntoken: '${T}'\nrows: '10'\nauth: { kind: open }\ntags: [1, '2', 3.0]",
    "references": "region: ${R}\ntoken: \"${T}\"\nrows: ${ROWS:-5}\nauth: {kind: \"open\", note: "
    "'${N}'}\ntags: ['${A}', b]",
    "no value": "region:\ntoken: ~\nrows: null\nauth:\ntags: []",
    "nothing": "{}",
    "not in this order": "tags:   # kept\n- b\n-   a  # a\nauth:\n  note: \"\"\n  kind:   open\nrows: 0x10\ntoken: ${T}\nregion: us",
    "other kinds": "region: [eu]\ntoken: {a: 1}\nrows: many\nauth: open\ntags: a,b",
    "no such forms": "region: xx\ntoken: ${T}\nrows: 1.0\nauth: {kind: other, x: 1}\ntags: [ '', ' a ', \"b\\nc\" ]",
    "no constant": "region: eu\ntoken: !secret '${T}'\nauth: {key: \"${K}\"}\nmore: {z: 1, a: 2}",
    "lines": "region: eu\ntoken: ${T}\nauth:\n  kind: open\n  note: |\n    one\n      two\n\n    "
    "three\ntags: ['x: y', \"#\", '- z']",
    "aliases": "region: &r eu\ntoken: ${T}\nauth: {kind: open, note: *r}\ntags: &t [a]\nagain: *t",
}  # fmt: skip
MORE = """
  streams: [ orders , {name: people,columns: ["!name", id], mode: append} ]   # streams
  defaults: { primary_key: [ [a, b] , c ] }
  permissions: { network: { allowed_hosts: [ "a.com" ] } }
transforms:
  - use: "./mask.wasm"   # masks
    config: { b: 1.50, a: "01" , n: ~ }
profiles:
  prod: { destination: { use: 'parquet:/lake' } }
  'with space':
    source: {config: {rows: "5"}}
"""


def file_of(site: Pages, config: str, more: str) -> str:
    lines = "\n".join(f"    {line}" if line else line for line in config.split("\n"))
    end = "destination:\n  use: parquet:./lake\n"
    head = f"# ours\npipeline: shop\nsource:\n  use: {site.source!r}\n"
    if config == "{}":
        return f"{head}  config: {{}}{more}\n{end}# end"
    return f"{head}  config:  # of the shop\n{lines}\n{more.lstrip(chr(10))}{end}# end"


def test_a_form_sent_as_it_was_drawn_leaves_the_file_as_it_is(pages: Start) -> None:
    site = pages(T="right-token").enter()
    file = site.folder / "shop.yaml"
    wrong: list[str] = []
    for n, (name, config) in enumerate(CONFIGS.items()):
        kind = ("plain", "windows", "with a mark")[n % 3]
        text = file_of(site, config, MORE if n % 2 else "")
        raw = text.replace("\n", "\r\n") if kind == "windows" else text
        had = ("\ufeff" if kind == "with a mark" else "").encode() + raw.encode()
        file.write_bytes(had)
        given = PageForms(site.edit_page()).sent(ADDRESS)
        # what the file would be, and one change beside which all else stays
        shown = site.ask(ADDRESS, "POST", {**given, "do": "preview"})
        yaml = PageForms(shown.text).sent("/p/shop.yaml/text")["text"][0]
        if yaml.replace("\r\n", "\n") != text:
            wrong.append(f"{name}: shown as {yaml!r}")
        answered = site.ask(ADDRESS, "POST", {**given, "do": "save"})
        if answered.status != 303 or file.read_bytes() != had:
            wrong.append(f"{name}, {kind}: {answered.status} {file.read_bytes()!r}")
        added = {"destination.permissions:permissions/env/allowed_vars": "HOME", "do": "save"}
        answered = site.ask(ADDRESS, "POST", {**given, **added})
        lines = b"  permissions:\n    env:\n      allowed_vars: [HOME]\n"
        lines = lines.replace(b"\n", b"\r\n") if kind == "windows" else lines
        if file.read_bytes() != had.replace(b"# end", lines + b"# end"):
            wrong.append(f"{name}, changed: {answered.status} {file.read_bytes()!r}")
    assert wrong == []
    assert not (site.folder / ".env").exists()


def test_a_change_touches_its_own_lines_and_both_directions_agree(pages: Start) -> None:
    site = pages(T="right-token").enter()
    file = site.folder / "shop.yaml"
    text = file_of(site, CONFIGS["numbers as text"], MORE)
    file.write_text(text)
    given = PageForms(site.edit_page()).sent(ADDRESS)
    given |= {
        "source:rows": ["12"],
        "transforms:transforms/0/use": ["./hide.wasm"],
        "source.streams:streams/1/columns": ["!name\r\nid\r\ncity"],
        "destination.permissions:permissions/network/allowed_hosts": ["b.com"],
        "profiles:profiles/prod/destination/use": ["delta:/lake"],
        "do": ["save"],
    }
    assert site.ask(ADDRESS, "POST", dict(given)).status == 303
    wanted = text.replace("rows: '10'", "rows: 12").replace('"./mask.wasm"', "./hide.wasm")
    wanted = wanted.replace('"!name", id]', '"!name", id, city]')
    wanted = wanted.replace("'parquet:/lake'", "delta:/lake")
    wanted = wanted.replace(
        "parquet:./lake\n",
        "parquet:./lake\n  permissions:\n    network:\n      allowed_hosts: [b.com]\n",
    )
    assert file.read_text() == wanted
    # and what is written in the text is what the form shows
    answered = site.ask("/p/shop.yaml/text", "POST", {
        "text": wanted.replace("rows: 12", "rows: 13").replace("\n", "\r\n"),
        "mark": PageForms(site.ask(ADDRESS).text).sent(ADDRESS)["mark"][0]})  # fmt: skip
    assert answered.status == 303
    assert PageForms(site.ask(ADDRESS).text).sent(ADDRESS)["source:rows"] == ["13"]
    assert file.read_text() == wanted.replace("rows: 12", "rows: 13")


def test_another_end_is_taken_and_all_else_stays(pages: Start) -> None:
    site = pages(T="right-token").enter()
    file = site.folder / "shop.yaml"
    had = file_of(site, CONFIGS["as the schema has it"], MORE)
    had = had.replace("use: parquet:./lake", "use: parquet  # ours\n  config: { path: ./lake }")
    file.write_text(had)

    def taken(role: str, use: str, **more: str) -> tuple[int, str]:
        given = PageForms(site.edit_page()).sent(ADDRESS)
        given |= {f"use#{role}": [use], "do": [f"use:{role}"]}
        answered = site.ask(ADDRESS, "POST", {**given, **more})
        return answered.status, answered.text

    assert taken("destination", "delta:./lake", do="preview")[0] == 200
    assert file.read_text() == had
    wanted = had.replace("parquet  # ours\n  config: { path: ./lake }", "delta:./other  # ours")
    assert taken("destination", "delta:./other")[0] == 303
    assert file.read_text() == wanted
    # with a change of a field beside it; the same program under another name
    more = {"source:rows": "12", "do": "save"}  # as Enter in its field sends it
    assert taken("source", f"{site.source} ", **more)[0] == 303
    assert file.read_text() == wanted.replace("rows: 10", "rows: 12")
    before = file.read_text()
    for role, use in (("source", "delta:./lake"), ("source", "parquet:"), ("source", "")):
        status, shown = taken(role, use)
        assert status in (200, 400) and file.read_text() == before, shown
    assert taken("destination", "delta:./x", mark="0" * 64)[0] == 409
    assert taken("destination", "delta:./x", **{"source:rows": "many"})[0] == 200
    assert file.read_text() == before


def test_a_fault_stands_beside_its_field_before_anything_is_saved(pages: Start) -> None:
    site = pages(T="right-token").enter()
    file = site.folder / "shop.yaml"
    had = file_of(site, CONFIGS["as the schema has it"], "")
    file.write_text(had)
    given = PageForms(site.edit_page()).sent(ADDRESS)
    shown = site.ask(ADDRESS, "POST", {**given, "source:rows": "many", "do": "save"})
    field = shown.text.partition('id="f-source_3arows"')[2][:400]
    assert "this is not a number" in field and file.read_text() == had
    shown = site.ask(ADDRESS, "POST", {**given, "source:rows": "1.5", "do": "preview"})
    field = shown.text.partition('id="f-source_3arows"')[2][:400]
    assert 'role="alert"' in field and file.read_text() == had
    kept = {k: v for k, v in given.items() if not k.startswith("source:region")}
    shown = site.ask(ADDRESS, "POST", {**kept, "source:region": "", "do": "preview"})
    field = shown.text.partition('id="f-source_3aregion"')[2][:900]
    assert "a value is required" in field


@pytest.mark.parametrize("part", ["transforms", "profiles"])
def test_a_secret_by_its_name_in_another_part_is_not_shown(pages: Start, part: str) -> None:
    site = pages(T="right-token").enter()
    file = site.folder / "shop.yaml"
    more = {"transforms": "transforms:\n  - {use: ./m.wasm, config: {a: 1, password: s3cr3t-9}}\n",
            "profiles": "profiles: {prod: {source: {config: {token: s3cr3t-9}}}}\n"}  # fmt: skip
    had = file_of(site, CONFIGS["as the schema has it"], "\n" + more[part])
    file.write_text(had)
    page = site.edit_page()
    assert "s3cr3t" not in page
    given = PageForms(page).sent(ADDRESS)
    assert site.ask(ADDRESS, "POST", {**given, "do": "save"}).status == 303
    assert file.read_text() == had


def test_what_was_typed_before_a_restart_is_saved_after_it(pages: Start) -> None:
    site = pages().enter()
    file = site.write(region="eu", token="${T}", auth={"kind": "open"})
    given = PageForms(site.edit_page()).sent(ADDRESS)
    given |= {"source:region": ['"us"'], "source:token": ["typed-before"], "do": ["save"]}
    site.kill()
    again = pages().enter()
    said = again.ask(ADDRESS, "POST", dict(given), origin=again.base)
    assert said.status == 303 and "saved" in said.headers["location"], said.text
    assert values_of(file.read_text())["source"]["config"]["region"] == "us"
    assert "typed-before" in (site.folder / ".env").read_text()


def test_a_form_that_cannot_be_saved_comes_back_as_it_was_sent(pages: Start) -> None:
    site = pages().enter()
    file = site.write(region="eu", token="${T}", auth={"kind": "open"})
    given = PageForms(site.edit_page()).sent(ADDRESS)
    given |= {"source:region": ['"us"'], "source:token": ["typed-1"], "do": ["save"]}
    file.write_text(file.read_text() + "# by another\n")
    said = site.ask(ADDRESS, "POST", dict(given), origin=site.base)
    assert said.status == 409 and "was changed by another" in said.text
    assert "typed-1" not in said.text
    again = PageForms(said.text).sent(ADDRESS)
    assert again["source:region"] == ['"us"'] and again["source:token"] == [""]
    again |= {"source:token": ["typed-2"], "do": ["save"]}
    assert site.ask(ADDRESS, "POST", dict(again), origin=site.base).status == 303
    saved = file.read_text()
    assert values_of(saved)["source"]["config"]["region"] == "us" and "# by another" in saved
    secrets = site.folder / ".env"
    assert "typed-2" in secrets.read_text() and "typed-1" not in secrets.read_text()
    secrets.chmod(0o644)
    again["mark"] = PageForms(site.edit_page()).sent(ADDRESS)["mark"]
    again |= {"source:region": ['"eu"'], "source:token": ["typed-3"]}
    said = site.ask(ADDRESS, "POST", dict(again), origin=site.base)
    assert said.status == 400 and PageForms(said.text).sent(ADDRESS)["source:region"] == ['"eu"']
    assert file.read_text() == saved


def test_a_typed_secret_is_kept_until_the_form_is_saved(pages: Start) -> None:
    """Its field comes back empty, as set; no page has it."""
    site = pages().enter()
    file = site.write(region="eu", auth={"kind": "open"})
    secrets, seen = site.folder / ".env", list[str]()

    def sent(given: dict[str, list[str]], do: str, **more: str) -> dict[str, list[str]]:
        answered = site.ask(ADDRESS, "POST", {**given, "do": do, **more}, origin=site.base)
        seen.append(answered.text)
        return PageForms(answered.text).sent(ADDRESS) if answered.status == 200 else {}

    first = PageForms(site.edit_page()).sent(ADDRESS)
    # a fault elsewhere, then another form of the login (without script), then saved
    again = sent(first, "save", **{"source:token": "typed-1", "source:rows": "many"})
    assert again["source:token"] == [""] and not secrets.exists()
    more = sent(again, "preview", **{"source:rows": "7", "source:auth#form": "0"})
    assert sent(more, "save", **{"source:auth/key": "typed-2"}) == {}
    config = values_of(file.read_text())["source"]["config"]
    assert config["rows"] == 7 and config["token"] == "${SHOP_SOURCE_TOKEN}"
    text = secrets.read_text()
    assert 'SHOP_SOURCE_TOKEN="typed-1"' in text and "typed-2" in text
    assert "typed-" not in "".join(seen)
    # of a server that was started meanwhile it is asked for again
    file.write_text(file.read_text().replace("SHOP_SOURCE_TOKEN", "SHOP_OTHER"))
    before = file.read_text()
    first = PageForms(site.edit_page()).sent(ADDRESS)
    again = sent(first, "save", **{"source:token": "typed-3", "source:rows": "many"})
    site.kill()
    site = pages().enter()
    site.edit_page()
    form = {**again, "source:rows": ["8"], "do": ["save"]}
    said = site.ask(ADDRESS, "POST", dict(form), origin=site.base)
    assert said.status == 400 and "type them again: source:token" in said.text.replace("&#39;", "'")
    assert file.read_text() == before
    said = site.ask(ADDRESS, "POST", {**form, "source:token": "typed-4"}, origin=site.base)
    assert said.status == 303 and "typed-4" in secrets.read_text()


@pytest.mark.parametrize("script", [True, False])
def test_typed_secrets_of_a_list_move_with_their_items(
    pages: Start, script: bool, tmp_path: Path
) -> None:
    """The fields after an item that is dropped are others for the browser, and come back empty."""
    site = pages().enter()
    parts = {"type": "array", "title": "Parts", "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "key": {"type": "string", "airbyte_secret": True}}}}  # fmt: skip
    program = tmp_path / "with_parts.py"
    tags = '"tags": {"type": "array"'
    assert tags in SOURCE
    program.write_text(
        SOURCE.replace(tags, f'"parts": {json.dumps(parts).replace("true", "True")}, {tags}')
    )
    site.source = f"airbyte:{sys.executable} {program}"
    file = site.write(
        region="eu", token="x", auth={"kind": "open"}, parts=[{"name": n} for n in "abc"]
    )

    def sent(
        given: dict[str, list[str]], do: str, *, by_script: bool = False
    ) -> dict[str, list[str]]:
        more = {"hx_request": "true"} if by_script else {}
        said = site.ask(ADDRESS, "POST", {**given, "do": do}, origin=site.base, **more)
        assert "typed-" not in said.text
        return PageForms(said.text).sent(ADDRESS) if said.status == 200 else {}

    form = PageForms(site.edit_page()).sent(ADDRESS)
    form |= {f"source:parts/{n}/key": [f"typed-{name}"] for n, name in enumerate("abc")}
    form = sent(form, "drop:source:parts:0", by_script=script)
    assert "source:parts/2/key" not in form and form["source:parts/1/key"] == [""]
    form = sent(form, "drop:source:parts:0", by_script=script)
    assert sent(form, "save") == {}
    (left,) = values_of(file.read_text())["source"]["config"]["parts"]
    assert left["name"] == "c"
    named = left["key"].removeprefix("${").removesuffix("}")
    assert (site.folder / ".env").read_text() == f'{named}="typed-c"\n'


def test_the_text_is_saved_with_what_was_typed_into_the_form_next_to_it(pages: Start) -> None:
    site = pages().enter()
    file = site.write(region="eu", auth={"kind": "open"})
    given = PageForms(site.edit_page()).sent(ADDRESS)
    given |= {"source:token": ["typed-1"], "do": ["preview"]}
    part = site.ask(ADDRESS, "POST", dict(given), hx_request="true").text
    text = PageForms(part).sent("/p/shop.yaml/text")
    assert "${SHOP_SOURCE_TOKEN}" in text["text"][0] and "typed-1" not in part
    assert site.ask("/p/shop.yaml/text", "POST", dict(text)).status == 303
    assert "${SHOP_SOURCE_TOKEN}" in file.read_text()
    assert "typed-1" in (site.folder / ".env").read_text()


def test_a_change_goes_over_a_file_that_changed_and_nothing_else_does(pages: Start) -> None:
    site = pages(T="right-token").enter()
    file = site.write(region="eu", token="${T}", rows=10, auth={"kind": "open"}, tags=["a"])
    given = PageForms(site.edit_page()).sent(ADDRESS)
    file.write_text(file.read_text().replace('"rows": 10', '"rows": 99').replace('"eu"', '"us"'))
    form = {**given, "source:tags": ["a\r\nb"], "do": ["save"]}
    said = site.ask(ADDRESS, "POST", dict(form), origin=site.base)
    assert said.status == 409
    again = PageForms(said.text).sent(ADDRESS)
    assert site.ask(ADDRESS, "POST", {**again, "do": "save"}, origin=site.base).status == 303
    config = values_of(file.read_text())["source"]["config"]
    assert (config["rows"], config["region"], config["tags"]) == (99, "us", ["a", "b"])


def test_a_text_of_before_a_restart_is_shown_again_where_it_cannot_be_saved(pages: Start) -> None:
    site = pages().enter()
    file = site.write(region="eu", token="stands-here-1", auth={"kind": "open"})
    before = file.read_text()
    given = PageForms(site.ask(f"{ADDRESS}?text=1").text).sent("/p/shop.yaml/text")
    assert "stands-here-1" not in given["text"][0]
    given["text"] = [given["text"][0] + "# typed before\r\n"]
    site.kill()
    again = pages().enter()
    said = again.ask("/p/shop.yaml/text", "POST", dict(given), origin=again.base)
    assert said.status == 409 and file.read_text() == before
    assert "# typed before" in said.text and "pages were started again" in said.text
    given["text"] = [before + "# without stars\n"]
    file.write_text(before + "# by another\n")
    said = again.ask("/p/shop.yaml/text", "POST", dict(given), origin=again.base)
    assert said.status == 409 and "# without stars" in said.text and "was changed" in said.text
    assert file.read_text().endswith("# by another\n")


def test_what_a_script_cannot_do_is_shown_and_the_form_stays(pages: Start) -> None:
    site = pages().enter()
    file = site.write(region="eu", token="${T}", auth={"kind": "open"})
    given = PageForms(site.edit_page()).sent(ADDRESS)
    asked = {"origin": site.base, "hx_request": "true"}
    before = file.read_text()
    changed = given | {"source:region": ['"us"'], "do": ["save"]}  # the button that was last used
    said = site.ask(ADDRESS, "POST", dict(changed), **asked)
    assert "region&#34;: us" in said.text and file.read_text() == before
    file.write_text("source: [\n")
    said = site.ask(ADDRESS, "POST", dict(given), **asked)
    assert said.status == 200 and said.headers["hx-retarget"] == "#trouble"
    assert "config.yaml" in said.text and "<html" not in said.text
    plain = site.ask(ADDRESS, "POST", dict(given), origin=site.base)
    assert plain.status == 400 and "<html" in plain.text


def test_work_of_an_earlier_server_is_not_waited_for(pages: Start) -> None:
    site = pages().enter()
    part = site.ask("/jobs/0123456789abcdef/part", hx_request="true")
    assert part.status == 200 and "was restarted" in part.text and "every 1s" not in part.text
    assert "was restarted" in site.ask("/jobs/0123456789abcdef").text


def test_work_that_has_ended_leads_to_its_answer(pages: Start) -> None:
    site = pages().enter()
    site.write(region="eu", token="x", auth={"kind": "open"}, slow=2)
    job = site.ask("/p/shop.yaml/discover", "POST", {}, origin=site.base).headers["location"]
    until = time.monotonic() + 60
    while job.startswith("/jobs/") and (said := site.ask(job)).status == 200:
        assert time.monotonic() < until, said.text
        time.sleep(0.1)
    assert job == "/p/shop.yaml/streams" or said.headers["location"] == "/p/shop.yaml/streams"


def test_an_export_of_the_state_is_what_was_imported(pages: Start) -> None:
    site = pages().enter()
    site.write(region="eu", token="x", auth={"kind": "open"})
    state = [{"type": "STREAM", "stream": {"stream_descriptor": {"name": "orders"},
              "stream_state": {"id": 12345678901234567890.5}}}]  # fmt: skip
    given = {"what": "import", "state": json.dumps(state)}
    said = site.ask("/p/shop.yaml/state/change", "POST", dict(given), origin=site.base)
    assert said.status == 303, said.text
    exported = site.ask("/p/shop.yaml/state/export")
    (found,) = json.loads(exported.text)
    assert found["stream"]["stream_descriptor"]["name"] == "orders", exported.text
    assert found["stream"]["stream_state"] == state[0]["stream"]["stream_state"]
    given = {"what": "reset", "stream": "orders"}  # what it is now is shown before it is changed
    asked = site.ask("/p/shop.yaml/state/ask", "POST", dict(given), origin=site.base)
    assert "It is now" in asked.text and "1.2345678901234567" in asked.text


def test_rows_that_wait_are_shown_and_given_up(pages: Start) -> None:
    """As a killed run leaves them: sealed in the log, and in no table."""
    site = pages().enter()
    file = site.write(region="eu", token="x", auth={"kind": "open"})
    given = {"what": "import", "state": "{bad"}
    asked = site.ask("/p/shop.yaml/state/ask", "POST", dict(given), origin=site.base)
    assert asked.status == 400 and "What to do" in asked.text, "before it asks whether to do it"
    assert PageForms(asked.text).sent("/p/shop.yaml/state/ask")["state"] == ["{bad"]
    assert "Do it" not in asked.text
    state = [{"type": "STREAM", "stream": {"stream_descriptor": {"name": "orders"},
              "stream_state": {"id": 5}}}]  # fmt: skip
    given = {"what": "import", "state": json.dumps(state)}
    assert (
        site.ask("/p/shop.yaml/state/change", "POST", dict(given), origin=site.base).status == 303
    )
    home, orders = Home(site.home), StreamId(None, "orders")
    store, log = open_store(home.state_url()), FileLog(Path(home.log("shop")))
    lease = store.acquire("shop", this_holder("run"), 60)
    epoch = store.new_epoch(lease, 0)
    log.claim(epoch, "test")
    part = PartRef(f"epochs/{epoch:08d}/parts/1.parquet", 7, 30, 4, 0)
    (log.root / part.path).write_bytes(b"rows")
    append = WriteDisposition(mode=DestinationSyncMode.append)
    share = StreamSlice(stream=orders, disposition=append, schema_version=1, generation=1,
                        fills_generation=False, parts=(part,), read=7)  # fmt: skip
    sealed = Segment(id=SegmentId(epoch, 1), lane=0, slices=(share,), scope=None, state=None)
    log.seal(epoch, [sealed])
    store.release(lease)
    store.close()
    shown = site.ask(f"/p/{file.name}/state").text
    assert "7 rows of orders" in shown and "Give them up" in shown
    done = site.ask("/p/shop.yaml/state/change", "POST", {"what": "sealed"}, origin=site.base)
    assert done.status == 303, done.text
    shown = site.ask(f"/p/{file.name}/state").text
    assert "Give them up" not in shown and '"id": 5' not in shown.partition("What was saved")[0]


def test_a_change_of_the_state_loses_no_stream_and_skips_no_row(pages: Start) -> None:
    site = pages().enter()
    site.write(region="eu", token="x", auth={"kind": "open"})

    def change(what: str, stream: str = "", **given: str) -> tuple[int, str]:
        form = {"what": what, "stream": stream, **given}
        said = site.ask("/p/shop.yaml/state/change", "POST", dict(form), origin=site.base)
        return said.status, said.text + said.headers.get("location", "")

    def saved() -> dict[str, object]:
        entries = json.loads(site.ask("/p/shop.yaml/state/export").text)
        return {e["stream"]["stream_descriptor"]["name"]: e["stream"]["stream_state"]
                for e in entries}  # fmt: skip

    whole = [
        {"type": "STREAM", "stream": {"stream_descriptor": {"name": name}, "stream_state": state}}
        for name, state in (("orders", {"at": "2024-01-03"}), ("people", {"page": "c"}))
    ]
    assert change("import", state=json.dumps(whole))[0] == 303
    for what in ("import", "set"):
        status, text = change(what, state='{"x": 1}')
        assert status == 400 and "state.drops_streams" in text, text
    status, text = change("rewind", "orders", to="2034-01-02")
    assert status == 400 and "state.cursor_ahead" in text and "2024-01-03" in text, text
    status, text = change("rewind", "people", to="d")
    assert status == 303 and "not+known" in text, text
    assert saved() == {"orders": {"at": "2024-01-03"}, "people": {"page": "d"}}
    assert change("set", "orders", state='{"at": "2025-01-01"}')[0] == 303
    assert saved() == {"orders": {"at": "2025-01-01"}, "people": {"page": "d"}}
