"""The page of streams: what a save changes in the file, and that it changes nothing else."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from web_harness import Answered, Pages

from penstock.config.load import load_pipeline
from penstock.model.catalog import StreamId

STREAMS = """\
    - people   # ours
    - {  name: "orders",  mode: mirror, columns: [id,   name] }
    # all of these
    - name: 's000*'
      primary_key: [ "id" ]
      cursor_field: [meta, at]   # nested
      sync_mode: cdc
"""


@pytest.fixture
def site(pages: Callable[..., Pages]) -> Pages:
    return pages().enter()


def opened(site: Pages, more: str = STREAMS) -> tuple[Path, str]:
    """A file with these streams, discovered."""
    file = site.write(region="eu", token="x", auth={"kind": "open"}, many=12)
    text = file.read_text()
    key = "  streams:\n" if more.startswith("    -") else ""
    text = text.replace("destination:", f"{key}{more}destination:")
    file.write_text(text)
    find(site)
    return file, text


def find(site: Pages) -> None:
    site.ask("/p/shop.yaml/discover", "POST", {}, origin=site.base)
    for _ in range(600):
        if 'name="row"' in site.ask("/p/shop.yaml/streams").text:
            return
        time.sleep(0.1)
    raise AssertionError("no streams")


def form_of(page: str) -> dict[str, list[str]]:
    """What a browser sends of the page's form, untouched."""
    form: dict[str, list[str]] = {"do": ["save"]}
    for tag in re.findall(
        r"<input[^>]*>", page.partition('class="stack"')[2].partition("<details>")[0]
    ):
        given = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if given.get("type") in ("radio", "checkbox") and "checked" not in tag:
            continue
        form.setdefault(given["name"], []).append(given.get("value", ""))
    for name, options in re.findall(r'<select name="([^"]*_mode [^"]*)".*?>(.*?)</select>', page):
        chosen = re.search(r"<option selected>([^<]*)", options)
        form[name] = [chosen[1] if chosen else ""]
    return form


def save(site: Pages, changes: dict[str, list[str]], path: str = "") -> Answered:
    form = form_of(site.ask(f"/p/shop.yaml/streams{path}").text) | changes
    return site.ask("/p/shop.yaml/streams", "POST", dict(form), origin=site.base)


def test_a_save_that_changes_nothing_changes_no_byte(site: Pages) -> None:
    file, before = opened(site)
    assert save(site, {}).status == 303
    assert file.read_text() == before


def test_one_setting_is_one_change(site: Pages) -> None:
    file, before = opened(site)
    save(site, {"destination_sync_mode people": ["append"]})
    made = file.read_text()
    assert "name: people" in made and "destination_sync_mode: append" in made
    rest = STREAMS.partition("# ours\n")[2]
    assert rest in made and before.partition("  streams:")[0] in made


def test_a_stream_of_a_pattern_gets_an_entry_of_its_own(site: Pages) -> None:
    file, before = opened(site)
    save(site, {"destination_sync_mode s00003": ["append"]})
    made = file.read_text()
    assert STREAMS in made
    settings = load_pipeline(file).stream_settings(StreamId(None, "s00003"))
    assert settings is not None and settings.destination_sync_mode is not None
    assert settings.sync_mode == "cdc" and settings.cursor_field == ("meta", "at")
    other = load_pipeline(file).stream_settings(StreamId(None, "s00004"))
    assert other is not None and other.destination_sync_mode is None
    assert len(made.splitlines()) < len(before.splitlines()) + 9


def test_a_stream_of_a_pattern_is_left_out_and_comes_back(site: Pages) -> None:
    file, before = opened(site)
    form = form_of(site.ask("/p/shop.yaml/streams").text)
    save(site, {"chosen": [c for c in form["chosen"] if c != "s00003"]})
    assert STREAMS in file.read_text() and "exclude: [s00003]" in file.read_text()
    page = site.ask("/p/shop.yaml/streams").text
    assert "s00003" not in form_of(page)["chosen"] and "s00002" in form_of(page)["chosen"]
    save(site, {"chosen": form["chosen"]})
    assert file.read_text() == before


def test_an_entry_goes_and_another_comes(site: Pages) -> None:
    file, before = opened(site, "    - people   # ours\n    - orders\n")
    form = form_of(site.ask("/p/shop.yaml/streams").text)
    assert form["chosen"] == ["orders", "people"]
    save(site, {"chosen": ["people", "s00001"]})
    gone = before.replace("    - orders\n", "    - s00001\n")
    assert file.read_text() == gone


def test_what_every_stream_leaves_out_is_not_shown_as_read(site: Pages) -> None:
    file, before = opened(site, "  exclude: [ people ] # no\n")
    page = site.ask("/p/shop.yaml/streams").text
    assert "people" not in form_of(page)["chosen"] and "leaves out" in page
    save(site, {})
    assert file.read_text() == before


def test_many_are_changed_and_no_other(site: Pages) -> None:
    file, _ = opened(site)
    save(site, {"do": ["bulk"], "words": ["s0*"], "bulk_destination_sync_mode": ["append"]})
    made = file.read_text()
    assert STREAMS in made  # only those of the pattern are read, each by an entry of its own
    pipeline = load_pipeline(file)
    for name, wanted in (("s00001", True), ("people", False), ("orders", False)):
        settings = pipeline.stream_settings(StreamId(None, name))
        assert settings is not None
        assert (str(settings.destination_sync_mode) == "append") is wanted, name


def test_settings_are_saved_where_every_stream_is_read(site: Pages) -> None:
    """A change in the table is never dropped, and new streams are still read."""
    file = site.write(region="eu", token="x", auth={"kind": "open"})
    plain = file.read_text()
    find(site)
    form = form_of(site.ask("/p/shop.yaml/streams").text)
    save(site, form | {"destination_sync_mode orders": ["append"]})
    listed = '  - "*"\n    - name: orders\n      destination_sync_mode: append\n'
    assert listed in file.read_text()
    form = form_of(site.ask("/p/shop.yaml/streams").text)
    assert form["which"] == ["every"] and form["destination_sync_mode orders"] == ["append"]
    save(site, form | {"destination_sync_mode orders": [""], "chosen": ["orders"]})
    assert "exclude: [people]" in file.read_text() and "people" not in str(
        [s.name for s in load_pipeline(file).source.streams or ()]
    )
    form = form_of(site.ask("/p/shop.yaml/streams").text)
    assert form["chosen"] == ["orders"]
    save(site, form | {"chosen": ["orders", "people"]})
    save(site, form_of(site.ask("/p/shop.yaml/streams").text) | {"which": ["chosen"]})
    assert [s.name for s in load_pipeline(file).source.streams or ()] == ["orders", "people"]
    save(site, form_of(site.ask("/p/shop.yaml/streams").text) | {"which": ["every"]})
    assert file.read_text() == plain


def test_a_page_of_before_a_restart_is_saved_as_it_says(
    site: Pages, pages: Callable[..., Pages]
) -> None:
    file, _ = opened(site)
    form = form_of(site.ask("/p/shop.yaml/streams").text) | {"chosen": ["people"]}
    site.kill()
    again = pages().enter()
    said = again.ask("/p/shop.yaml/streams", "POST", dict(form), origin=again.base)
    assert said.status == 303 and "changed" in said.headers["location"]
    assert [s.name for s in load_pipeline(file).source.streams or ()] == ["people", "s000*"]


def test_the_columns_of_a_stream_are_chosen(site: Pages) -> None:
    file, _ = opened(site, STREAMS + '    - { name: s00011, columns: [[meta, "a.b"], id] }\n')
    page = site.ask("/p/shop.yaml/streams").text
    form = form_of(page)
    assert form["columns orders"] == ["id, name"] and form["columns people"] == [""]
    assert "columns s00011" not in form  # a path as a list is changed in the text
    save(site, {"columns people": ["id, !email , meta.*"]})
    made = load_pipeline(file).stream_settings(StreamId(None, "people"))
    assert made is not None and made.columns is not None
    assert "columns: [id, '!email', meta.*]" in file.read_text().replace('"', "'")
    for typed in ("id, nothing, !n*, names.first", "*", "!name"):
        said = save(site, {"columns people": [typed]}).headers["location"].replace("+", " ")
        assert ("people has no column nothing. people has no column names." in said) is (
            "nothing" in typed
        )
    save(site, {"columns people": [""]})
    assert load_pipeline(file).stream_settings(StreamId(None, "people")) is not None
    assert "!email" not in file.read_text() and "- { name: s00011" in file.read_text()
    save(site, {"columns orders": ["id"]})
    assert "name, " not in file.read_text().partition("orders")[2].partition("\n")[0]


def test_many_get_a_key_and_a_cursor_where_their_catalog_has_them(site: Pages) -> None:
    file, _ = opened(site, "    - people\n    - orders\n    - s00011\n")

    def saved(key: str, cursor: str) -> tuple[object, object]:
        """Changes all streams. The key of s00011, which has none of its own, and its cursor."""
        bulk = {"do": ["bulk"], "words": [""], "bulk_key": [key], "bulk_cursor": [cursor]}
        save(site, bulk)
        found = load_pipeline(file).stream_settings(StreamId(None, "s00011"))
        assert found is not None
        return found.primary_key, found.cursor_field

    assert saved("nothing", "nothing") == (None, None)
    assert saved("id, name", "") == ((("id",), ("name",)), None)
    assert saved("", "name") == ((("id",), ("name",)), ("name",))
    people = load_pipeline(file).stream_settings(StreamId(None, "people"))
    assert people is not None and people.primary_key is None  # its own key stays
    assert people.cursor_field == ("name",)


def test_a_stream_with_an_entry_of_its_own_is_left_out_beside_every_stream(site: Pages) -> None:
    file, before = opened(site, '    - "*"\n    - { name: orders, mode: mirror }\n')
    form = form_of(site.ask("/p/shop.yaml/streams").text)
    assert form["which"] == ["every"] and len(form["chosen"]) == 14
    done = save(site, {"chosen": [name for name in form["chosen"] if name != "orders"]})
    assert "13+are+read" in done.headers["location"]
    made = load_pipeline(file).source
    assert made.exclude == ("orders",) and "{ name: orders, mode: mirror }" in file.read_text()
    assert "orders" not in form_of(site.ask("/p/shop.yaml/streams").text)["chosen"]
    again = save(site, {"chosen": form["chosen"]})
    assert "14+are+read" in again.headers["location"] and file.read_text() == before
