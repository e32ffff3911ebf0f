"""What goes wrong is a page that says what happened and what to do, and no page shows a secret."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from web_harness import Pages

from penstock.config.home import Home
from penstock.model.catalog import StreamId
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.remembered import Remembered, StoredPlace
from penstock.web import launches
from penstock.web.connector_specs import ConnectorSpecs
from penstock.web.hidden_text import HiddenTexts

Start = Callable[..., Pages]


def is_good_fault(text: str) -> bool:
    return 'class="fault"' in text and "What to do" in text and "Traceback" not in text


def test_a_store_that_is_damaged_is_a_page_with_what_to_do(pages: Start) -> None:
    site = pages().enter()
    site.write(region="eu")
    site.ask("/")
    store = next(p for p in site.home.rglob("*") if p.suffix in (".db", ".sqlite", ".sqlite3"))
    store.write_bytes(b"no database at all" * 500)
    for path in ("/", "/runs", "/p/shop.yaml/state"):
        answered = site.ask(path)
        assert answered.status in (400, 500) and is_good_fault(answered.text), (path, answered.text)


def test_what_nobody_expected_is_a_page_too(pages: Start) -> None:
    """A file in the place of a folder; more inputs than any form has."""
    site = pages().enter()
    site.write(region="eu")
    site.ask("/runs")
    (site.home / "runs").rmdir()
    (site.home / "runs").write_text("in the way")
    answered = site.ask("/runs")
    assert answered.status == 400 and is_good_fault(answered.text), answered.text
    many: dict[str, object] = {f"a{n}": "" for n in range(100_001)}
    answered = site.ask("/p/shop.yaml/edit", "POST", many, origin=site.base)
    assert answered.status == 500 and is_good_fault(answered.text), answered.text[:2000]
    (trace,) = (site.home / "errors").iterdir()
    assert str(trace) in answered.text and "ValueError" in trace.read_text()
    assert site.ask("/machine").status == 200


def test_where_no_spark_stays_none_is_started(pages: Start) -> None:
    site = pages().enter()
    job = site.ask("/machine/spark/start", "POST", {}, origin=site.base).headers["location"]
    for _ in range(300):
        if is_good_fault(shown := site.ask(job).text):
            break
        time.sleep(0.1)
    assert "no Spark stays" in shown and "PENSTOCK_DAEMON=1" in shown


def test_a_search_that_finds_nothing_links_to_what_was_meant(pages: Start) -> None:
    site = pages().enter()
    misspelt = site.ask("/find?words=gihub").text
    assert is_good_fault(misspelt) and 'href="/find?words=github"' in misspelt
    elsewhere = site.ask("/find?words=faker&role=destination").text
    assert 'href="/find?words=faker"' in elsewhere and "in every role" in elsewhere
    assert "Search for" not in site.ask("/find?words=zzzqqqxxx").text
    own = site.ask("/find?words=./my_tap.py").text
    assert 'href="/new?source=singer%3A.%2Fmy_tap.py"' in own
    assert "airbyte:docker:me/source-own" in site.ask("/find?words=me/source-own").text
    assert "rapidbyte:./own.wasm" in site.ask("/find?words=./own.wasm").text


def test_what_a_pipeline_did_is_shown_where_its_variables_are_not_set(pages: Start) -> None:
    """A run of cron gets them from elsewhere: what it did needs none of them."""
    site = pages().enter()
    file = site.write(region="eu", token="${ELSEWHERE_ONLY}", auth={"kind": "open"})
    store = open_store(Home(site.home).state_url())
    lease = store.acquire("shop", this_holder("run"), 60)
    store.start_run(lease, "01M7XSABSQKS4E4G1K1VWFWA18", "2026-01-01T00:00:00Z")
    store.release(lease)
    store.close()
    home = site.ask("/").text
    assert "ELSEWHERE_ONLY" in home and "2026-01-01" in home and "Ran from elsewhere" not in home
    for page in ("runs", "rejects", "state", "rows"):
        assert site.ask(f"/p/{file.name}/{page}").status == 200, page
    assert site.ask(f"/p/{file.name}/plan").status == 200  # says what is missing


def test_a_folder_without_rights_says_so(tmp_path: Path) -> None:
    """As another user, who may look into the folder and not write there, and then not even that."""
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "a.yaml").write_text("pipeline: a\n")
    code = (
        "import os;os.setgid(65534);os.setuid(65534)\n"
        "from pathlib import Path\nfrom penstock.config.home import Home\n"
        "from penstock.errors import ConfigError\nfrom penstock.web.workspace import Workspace\n"
        f"space = Workspace(Path({str(tmp_path / 'pipelines')!r}), Home(Path('/nonexistent')))\n"
        "def tried(work):\n    try:\n        return work()\n"
        "    except ConfigError as e:\n        return f'{e.code}: {e.message} {e.hint}'\n"
        "print(tried(lambda: space.names()))\n"
        "print(tried(lambda: space.save('a.yaml', 'x', space.text('a.yaml').mark)))\n"
        "print(tried(lambda: space.create('b.yaml', 'x')))\n"
        "print(tried(lambda: space.text('a.yaml').text))\n"
    )
    for above in tmp_path.parents:
        if Path(tempfile.gettempdir()) in above.parents:
            above.chmod(0o755)
    said: list[list[str]] = []
    for mode in (0o755, 0o700):
        tmp_path.chmod(0o755)
        (tmp_path / "pipelines").chmod(mode)
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd="/")
        if "No module named" in done.stderr or "Permission denied: '/" in done.stderr[:200]:
            pytest.skip("another user cannot run this Python")
        said.append(done.stdout.splitlines())
        assert done.returncode == 0, done.stderr
    assert said[0][0] == "['a.yaml']" and said[0][3] == "pipeline: a"
    for line in (*said[0][1:3], *said[1]):
        assert line.startswith("config.") and "None" not in line, said


def test_a_page_that_is_looked_at_starts_nothing(pages: Start, tmp_path: Path) -> None:
    site = pages().enter()
    file = site.write(region="eu")
    (tmp_path / "mark.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\n")
    file.write_text(file.read_text().replace("source_shop.py", "mark.py"))
    for page in ("", "/p/shop.yaml/edit", "/p/shop.yaml/edit?text=1", "/runs", "/machine",
                 *(f"/p/shop.yaml/{p}" for p in ("streams", "check", "plan", "runs", "rows",
                                                 "rejects", "state", "preview"))):  # fmt: skip
        assert site.ask(page or "/").status == 200, page
    assert not (tmp_path / "ran").exists()
    asked = site.ask("/p/shop.yaml/ask", "POST", {}, origin=site.base)
    for _ in range(100):
        if (tmp_path / "ran").exists():
            break
        site.ask(f"{asked.headers['location']}/part")
    assert (tmp_path / "ran").exists()


SECRETS = """\
# it was hunter-two-2 once
pipeline: shop
source:
  use: {use}
  config:
    region: eu-with-a-long-name
    token: "hunter-two-2"   # kept
    auth: {{kind: key, key: 'it''s a "key"'}}
    url: https://u:pass-word-9@shop.example/?api_key=abcdefgh12
    cert: |
      -----BEGIN-----
      line-of-a-key
    mine: !secret under-a-plain-name
    set: ${{SHOP_TOKEN}}
destination:
  use: "parquet:./lake"
"""
HIDDEN = ("hunter-two-2", "it''s", 'a "key"', "pass-word-9", "abcdefgh12", "under-a-plain-name")


@pytest.mark.parametrize("asked", [False, True])
def test_no_secret_of_the_file_is_in_its_text_and_all_stay_in_the_file(
    pages: Start, asked: bool
) -> None:
    site = pages(SHOP_TOKEN="from-the-environment").enter()
    file = site.write()
    file.write_text(SECRETS.format(use=json.dumps(site.source)))
    if asked:
        form = site.edit_page()
        assert not [s for s in HIDDEN[:3] + HIDDEN[-1:] if s in form]
    page = site.ask("/p/shop.yaml/edit?text=1").text
    assert (not [s for s in HIDDEN if s in page] and "line-of-a-key" not in page) or asked
    assert "from-the-environment" not in page and "${SHOP_TOKEN}" in page
    assert "# kept" in page
    for path in ("/", "/runs", "/p/shop.yaml/check", "/p/shop.yaml/plan", "/p/shop.yaml/streams"):
        assert not [s for s in HIDDEN if s in site.ask(path).text], path
    text = re.search(r"(?s)<textarea[^>]*>\n(.*?)</textarea>", page)
    mark = re.search(r'name="mark" value="(\w+)"', page)
    assert text is not None and mark is not None
    import html

    sent = html.unescape(text[1]).replace("# kept", "# seen")
    form_: dict[str, object] = {"text": sent, "mark": mark[1]}
    assert site.ask("/p/shop.yaml/text", "POST", form_, origin=site.base).status == 303
    assert file.read_text() == SECRETS.format(use=json.dumps(site.source)).replace(
        "# kept", "# seen"
    )
    strange = {"text": sent.replace("********-", "********-0"), "mark": mark[1]}
    site.ask("/p/shop.yaml/text", "POST", {**strange, "text": "a: ********-01234567"},
             origin=site.base)  # fmt: skip
    assert "01234567" not in file.read_text()


def test_a_broken_text_shows_no_secret_and_can_be_mended(tmp_path: Path) -> None:
    hidden = HiddenTexts(ConnectorSpecs(Home(tmp_path)))
    text = 'a: [\nsource:\n  password: "s3cret-word"\n  url: x://u:other-word@h\n  name: shop\n'
    shown = hidden.hide(text)
    assert "s3cret-word" not in shown and "other-word" not in shown and "name: shop" in shown
    assert hidden.restore(shown.replace("a: [", "a: []")) == text.replace("a: [", "a: []")


def test_a_message_of_a_job_has_no_secret(pages: Start) -> None:
    """The connector's own error, with what it was given."""
    site = pages().enter()
    file = site.write(region="eu", token="hunter-two-2", auth={"kind": "open"})
    place = site.folder.parent / "loud.py"
    place.write_text(
        (site.folder.parent / "source_shop.py")
        .read_text()
        .replace(
            'elif verb == "discover":',
            'elif verb == "discover":\n    sys.exit("cannot log in with " + config["token"])\n'
            'elif verb == "never":',
        )
    )
    file.write_text(file.read_text().replace("source_shop.py", "loud.py"))
    for verb in ("discover", "plan", "check"):
        job = site.ask(f"/p/shop.yaml/{verb}", "POST", {}, origin=site.base).headers["location"]
        text = site.ask(job).text
        while "every 1s" in text:
            text = site.ask(job).text
        assert "hunter-two-2" not in text, verb
        if verb == "discover":
            assert "cannot log in with" in text


def test_a_process_is_found_where_there_is_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import time; time.sleep(60)"
    words = [sys.executable, "-c", code, "penstock", "run", "/x/shop.yaml"]
    run = subprocess.Popen(words)
    started = launches.StartedRun(id="0" * 24, file="shop.yaml", pid=run.pid, at=0.0)
    try:
        assert launches.lives(started)
        folder = tmp_path / "bin"
        folder.mkdir()
        ps = folder / "ps"  # as macOS answers
        ps.write_text(f'#!/bin/sh\n[ "$5" = {run.pid} ] || exit 1\necho "{" ".join(words[3:])}"\n')
        ps.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setattr(launches, "_PROC", tmp_path / "none")
        assert launches.lives(started)
        assert not launches.lives(
            launches.StartedRun(id="0" * 24, file="shop.yaml", pid=run.pid + 1, at=0.0)
        )
    finally:
        run.kill()
        run.wait()


def test_a_name_of_which_no_stream_is_known_is_not_listed_as_a_pipeline(pages: Start) -> None:
    """A run of a misspelt connector leaves its name in the store, and nothing else."""
    site = pages().enter()
    site.write(region="eu")
    store = open_store(Home(site.home).state_url())
    for name in ("orders-from-elsewhere", "source-fakr"):
        lease = store.acquire(name, this_holder("run"), 60)
        if name.startswith("orders"):
            store.new_generation(lease, [StreamId(None, "orders")])
        store.release(lease)
    store.close()
    shown = site.ask("/").text
    assert "orders-from-elsewhere" in shown and "source-fakr" not in shown


def test_a_process_that_answers_and_ends_while_it_is_looked_at_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page said that it had ended without an answer, and was not loaded again."""
    home = Home(tmp_path / "home")
    started = launches.StartedRun(id="0" * 24, file="shop.yaml", pid=1, at=0.0)
    folder = home.path / "ui" / started.id
    folder.mkdir(parents=True)

    def lives(_: launches.StartedRun) -> bool:
        (folder / "out").write_text('{"status": "succeeded"}')
        return False

    monkeypatch.setattr(launches, "lives", lives)
    assert launches.outcome(home, started) == ({"status": "succeeded"}, False)


def test_a_file_with_a_fault_is_opened_and_shown_with_its_line(pages: Start) -> None:
    site = pages().enter()

    def brought(text: str, name: str = "") -> str:
        given: dict[str, object] = {"text": text, "name": name}
        answered = site.ask("/open", "POST", given, origin=site.base)
        return site.ask(answered.headers["location"]).text if answered.status == 303 else (
            answered.text
        )  # fmt: skip

    shown = brought("pipeline: shop\r\nsource: [\r\n", "broken")
    assert is_good_fault(shown) and "file:3:1: expected a value" in shown and "source: [" in shown
    assert (site.folder / "broken.yaml").read_bytes() == b"pipeline: shop\nsource: [\n"
    assert is_good_fault(brought("  \n")) and is_good_fault(brought("a: 1", "..."))
    assert "pipeline.yaml is written" in brought("a: 1")
    assert {p.name for p in site.folder.iterdir()} == {"broken.yaml", "pipeline.yaml"}


def test_a_run_that_was_refused_beside_another_is_not_the_last_one(pages: Start) -> None:
    """Home shows the run that goes on."""
    site = pages().enter()
    file = site.write(region="eu", token="x", auth={"kind": "open"})
    store = open_store(Home(site.home).state_url())
    run = "01M7XSABSQKS4E4G1K1VWFWA18"
    lease = store.acquire("shop", this_holder(run), 600)
    try:
        store.start_run(lease, run, "2026-01-01T00:00:00Z")
        words = [sys.executable, "-m", "penstock", "run", str(file), "--home", str(site.home)]
        refused = subprocess.run([*words, "--json"], capture_output=True, timeout=60)
        assert json.loads(refused.stdout)["error"]["code"] == "state.locked"
        home = site.ask("/").text
        assert (
            "s-running" in home
            and "s-failed"
            not in home.partition("<article")[2].partition("</svg>")[2].partition("</article>")[0]
        )
    finally:
        store.release(lease)
        store.close()


def test_a_name_that_another_folder_s_pipeline_has_is_shown_and_not_given_again(
    pages: Start,
) -> None:
    site = pages().enter()
    store = open_store(Home(site.home).state_url())
    lease = store.acquire("shop", this_holder("run"), 60)
    store.new_epoch(lease, 0)
    store.remember(lease, Remembered(place=StoredPlace(folder="/srv/elsewhere")))
    store.release(lease)
    store.close()
    form: dict[str, object] = {"source": site.source, "destination": "parquet:./lake"}

    def made(name: str) -> str:
        answered = site.ask("/new", "POST", {**form, "name": name}, origin=site.base)
        where = answered.headers["location"]
        for _ in range(300):
            if "every 1s" not in (shown := site.ask(where).text):
                break
            time.sleep(0.1)
        return shown

    shown = made("shop")
    assert is_good_fault(shown) and "/srv/elsewhere" in shown
    assert [*site.folder.glob("*.yaml")] == []
    made("other")
    assert (site.folder / "other.yaml").exists()
    text = (site.folder / "other.yaml").read_text().replace("pipeline: other", "pipeline: shop")
    (site.folder / "other.yaml").write_text(text)
    state = site.ask("/p/other.yaml/state").text
    assert "another pipeline of the same name: of /srv/elsewhere" in state
