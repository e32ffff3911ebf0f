"""The pages in a real browser: the whole way of a pipeline, secrets, two tabs, without script,
narrow, for everybody."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_harness import Pages

from penstock.config.load import load_pipeline

Start = Callable[..., Pages]
TOKEN = "t0p-s3cret-token"


class Tab:
    """A page of the browser; what its console says and every answer's text are kept."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.console: list[str] = []
        self.texts: list[str] = []
        self.page.set_default_timeout(30_000)
        self.page.on("console", lambda m: self.console.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.console.append(f"error: {e}"))
        self.page.on("response", self._keep)

    def _keep(self, response: Any) -> None:
        try:
            self.texts.append(response.text())
        except Exception as e:  # a redirect has no body
            self.texts.append(str(e))


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    made = browser.new_context(viewport={"width": 1200, "height": 900})
    yield made
    made.close()


def entered(site: Pages, context: Any) -> Tab:
    tab = Tab(context)
    tab.page.goto(site.address)
    tab.page.wait_for_url(f"{site.base}/")
    return tab


def to_form(page: Any, site: Pages) -> None:
    """Goes to the form, whose connectors are asked on the way."""
    page.goto(f"{site.base}/p/shop.yaml/edit")
    while page.locator("text=Show its form").count():
        page.click("text=Show its form")
        page.wait_for_url("**/p/shop.yaml/edit")
    page.wait_for_selector("[name='source:token']", state="attached")


def test_from_nothing_to_a_plan_without_a_file_or_a_flag(pages: Start, context: Any) -> None:
    site = pages()
    tab = entered(site, context)
    page = tab.page
    page.click("text=New pipeline")
    page.fill("#source", site.source)
    page.fill("#destination", f"delta:{site.folder}/lake")
    page.fill("#name", "shop")
    page.click("text=Make it")
    page.wait_for_url("**/p/shop.yaml/edit")
    file = site.folder / "shop.yaml"
    assert "${" in file.read_text() and page.locator("text=needs a value").count() >= 1

    # a choice of forms: its fields come with it, and what was typed stays
    page.select_option("[name='source:region']", '"eu"')
    page.fill("[name='source:token']", "wrong-" + TOKEN)
    page.select_option("[name='source:auth#form']", "1")
    page.wait_for_selector("[name='source:auth/note']", state="attached")
    page.click("fieldset summary")
    page.fill("[name='source:auth/note']", "mine")
    page.press("[name='source:auth/note']", "Tab")
    for _ in range(100):  # its policy lets nobody evaluate a text, also no test
        if "note: mine" in page.input_value("#yaml"):
            break
        page.wait_for_timeout(50)
    assert "note: mine" in page.input_value("#yaml")
    assert page.input_value("[name='source:token']") == "wrong-" + TOKEN
    assert "kind: open" in page.input_value("#yaml") and "kind: open" not in file.read_text()

    page.click("text=Save and check")
    page.wait_for_selector("text=The source refuses")
    said = page.inner_text(".fault")
    assert "the shop says no to <b>" in said and TOKEN not in said  # its words, without the secret

    page.click("nav.tabs >> text=Edit")
    assert page.input_value("[name='source:token']") == ""
    page.fill("[name='source:token']", "right-token")
    page.click("text=Save and check")
    page.wait_for_selector("text=Both ends answer")

    env = site.folder / ".env"
    assert env.read_text() == 'SHOP_SOURCE_TOKEN="right-token"\n'
    assert stat.S_IMODE(env.stat().st_mode) == 0o600
    assert 'token: "${SHOP_SOURCE_TOKEN}"' in file.read_text()
    assert "# A pipeline of Penstock" in file.read_text()

    page.click("nav.tabs >> text=Streams")
    page.click("text=Find streams")
    page.wait_for_selector("td:has-text('orders')")
    page.uncheck("[aria-label='read people']")
    page.check("[value=chosen][name=which]")
    page.select_option("[name='destination_sync_mode orders']", "append")
    page.click("button.main:has-text('Save')")
    page.wait_for_selector(".said")
    assert "destination_sync_mode: append" in file.read_text() and "people" not in file.read_text()

    page.click("nav.tabs >> text=Plan")
    page.click("text=Plan now")
    page.wait_for_selector("article:has-text('orders')")
    assert "new table" in page.inner_text("article")

    assert [line for line in tab.console if not line.startswith("verbose")] == []
    everything = "\n".join(tab.texts)
    assert TOKEN not in everything and "right-token" not in everything
    for found in [*site.folder.rglob("*"), *site.home.rglob("*")]:
        if found.is_file() and found.name != ".env":
            assert b"right-token" not in found.read_bytes(), found
            assert TOKEN.encode() not in found.read_bytes(), found


def test_a_secret_that_stands_in_the_file_is_hidden_and_moves_into_its_own(
    pages: Start, context: Any
) -> None:
    site = pages()
    file = site.write(region="eu", token=TOKEN, auth={"kind": "open"})
    tab = entered(site, context)
    tab.page.goto(f"{site.base}/p/shop.yaml/edit?text=1")
    assert "********-" in tab.page.input_value("#yaml")
    to_form(tab.page, site)
    before = file.read_text()
    tab.page.fill("#yaml", tab.page.input_value("#yaml").replace("# ours", "# ours too"))
    tab.page.click("text=Save the text")
    tab.page.wait_for_selector(".said")
    assert file.read_text() == before.replace("# ours", "# ours too")
    assert TOKEN not in "\n".join(tab.texts)
    tab.page.fill("[name='source:token']", TOKEN)
    tab.page.click("button.main:has-text('Save')")
    tab.page.wait_for_selector(".said")
    assert TOKEN not in file.read_text() and TOKEN in (site.folder / ".env").read_text()
    assert "# ours" in file.read_text() and "# kept" in file.read_text()
    assert TOKEN not in "\n".join(tab.texts)


def test_two_tabs_do_not_overwrite_each_other(pages: Start, context: Any) -> None:
    site = pages()
    file = site.write(region="eu", token="${T}", auth={"kind": "open"})
    first, second = entered(site, context), Tab(context)
    for tab in (first, second):
        to_form(tab.page, site)
    first.page.select_option("[name='source:region']", '"us"')
    first.page.click("button.main:has-text('Save')")
    first.page.wait_for_selector(".said")
    second.page.fill("[name='source:token']", TOKEN)
    second.page.click("button.main:has-text('Save')")
    second.page.wait_for_selector("text=was changed by another program or tab")
    assert "us" in file.read_text() and not (site.folder / ".env").exists()


def test_what_is_written_in_the_file_is_what_the_form_shows(pages: Start, context: Any) -> None:
    site = pages()
    site.write(region="eu", token="${T}", auth={"kind": "open"})
    page = entered(site, context).page
    to_form(page, site)
    page.fill("#yaml", page.input_value("#yaml").replace('"eu"', '"us"'))
    page.click("text=Save the text")
    page.wait_for_selector(".said")
    assert page.input_value("[name='source:region']") == '"us"'
    page.fill("#yaml", "pipeline: shop\nsource: [\n")
    page.click("text=Save the text")
    page.wait_for_selector(".fault")  # shown with its line, and still to be edited
    assert "3" in page.inner_text(".fault") and "source: [" in page.input_value("#yaml")


def test_what_is_typed_while_an_answer_is_on_its_way_stays(pages: Start, context: Any) -> None:
    site = pages()
    site.write(region="eu", token="${T}", auth={"kind": "open", "note": "first"})
    page = entered(site, context).page
    to_form(page, site)
    held: list[Any] = []
    address = "**/p/shop.yaml/edit"
    page.route(address, lambda route: route.continue_() if held else held.append(route))
    page.select_option("[name='source:region']", '"us"')
    while not held:
        page.wait_for_timeout(50)
    page.fill("[name='source:auth/note']", "second")
    with page.expect_response(address):
        held[0].continue_()
    page.wait_for_timeout(300)
    assert page.input_value("[name='source:auth/note']") == "second"
    with page.expect_response(address):
        page.press("[name='source:auth/note']", "Tab")
    page.wait_for_timeout(300)
    text = page.input_value("#yaml")
    assert "second" in text and '"region": us' in text
    page.fill("#yaml", f"{text}# mine")
    with page.expect_response(address):
        page.select_option("[name='source:region']", '"eu"')
    page.wait_for_selector("text=changes that are not saved")
    assert page.input_value("#yaml").endswith("# mine")


def test_a_form_works_without_script(pages: Start, browser: Any) -> None:
    site = pages()
    file = site.write(region="eu", token="${T}", auth={"kind": "key"})
    plain = browser.new_context(java_script_enabled=False)
    page = entered(site, plain).page
    to_form(page, site)
    page.select_option("[name='source:auth#form']", "1")
    page.click("text=Show its fields")
    page.click("fieldset summary")
    page.fill("[name='source:auth/note']", "hello")
    page.fill("[name='source:token']", "right-token")
    page.click("text=Save and check")
    page.wait_for_selector("text=Both ends answer")
    assert "note: hello" in file.read_text()
    plain.close()


def test_a_page_that_shows_a_fault_is_no_error_of_the_browser_s_console(
    pages: Start, browser: Any
) -> None:
    site = pages()
    site.write(region="eu", token="${T:-x}", auth={"kind": "open"})
    (site.folder / "broken.yaml").write_text("source: [\n")
    page = browser.new_context().new_page()
    console: list[str] = []
    page.on("console", lambda m: console.append(m.text))
    page.goto(site.address)
    for path, shown in (("/nothing", "no such page"), ("/p/none.yaml/edit", "no such pipeline"),
                        ("/p/broken.yaml/rows", "expected a value"),
                        ("/open", "Open a file")):  # fmt: skip
        page.goto(site.base + path)
        assert shown in page.inner_text("main").lower() or shown in page.inner_text("main"), path
    page.click("text=Write it")  # the browser itself asks for the text
    page.fill("#yaml", "pipeline: broken\n")
    page.click("text=Write it")
    page.wait_for_selector("text=broken.yaml exists already")
    assert console == []
    page.context.close()


def wait_for_text(page: Any, words: str) -> None:
    """Waits until the text of the file has the words."""
    for _ in range(300):
        if words in page.input_value("#yaml"):
            return
        page.wait_for_timeout(100)
    raise AssertionError(page.input_value("#yaml"))


def test_a_day_is_chosen_and_a_wrong_one_is_refused_in_the_schema_s_words(
    pages: Start, browser: Any
) -> None:
    site = pages()
    file = site.write(region="eu", token="${T:-x}", auth={"kind": "open"})
    page = browser.new_context().new_page()
    page.goto(site.address)
    to_form(page, site)
    page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
    page.fill("[aria-label='choose a day for Since']", "2026-02-28")
    page.dispatch_event("[aria-label='choose a day for Since']", "change")
    wait_for_text(page, "2026-02-28T00:00:00Z")
    page.click("button.main:has-text('Save')")
    page.wait_for_selector(".said")
    found = load_pipeline(file).source.config["since"]
    assert found == "2026-02-28T00:00:00Z"
    page.fill("[name='source:since']", "yesterday")
    page.click("button.main:has-text('Save')")
    page.wait_for_selector("text=expected the form YYYY-MM-DDThh:00:00Z")
    page.context.close()


def test_a_file_that_one_has_is_opened(pages: Start, browser: Any, tmp_path: Path) -> None:
    """The first page of an empty folder offers it; every byte of the text is kept."""
    site = pages()
    text = f"# ours\npipeline: eu-shop\nsource:  {{use: '{site.source}'}}\n"
    text += "destination: {use: parquet, config: {path: ./lake}}\n# é: the end\n"
    own = tmp_path / "from a colleague.yml"
    own.write_text(text)
    page = browser.new_context().new_page()
    page.goto(site.address)
    page.click("text=Open a file")
    page.set_input_files("#chosen", own)
    wait_for_text(page, "the end")
    page.click("text=Write it")
    page.wait_for_selector("text=eu-shop.yaml is written")
    assert (site.folder / "eu-shop.yaml").read_text() == text
    page.goto(f"{site.base}/open")
    page.fill("#yaml", "pipeline: eu-shop\n")
    page.click("text=Write it")
    page.wait_for_selector("text=eu-shop.yaml exists already")
    assert (site.folder / "eu-shop.yaml").read_text() == text
    page.context.close()


OF_SHOP = (
    "edit", "edit?text=1", "streams", "check", "plan", "runs", "rows", "rejects", "state"
)  # fmt: skip
PATHS = (
    "/", "/new", "/open", "/find?words=postgres", "/runs", "/machine", "/nothing",
    "/find/connector?connector=airbyte:source-faker", *(f"/p/shop.yaml/{p}" for p in OF_SHOP),
)  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out(pages: Start, browser: Any, scheme: Any) -> None:
    """axe finds nothing serious, no page is wider than a small telephone, none names what is not
    there."""
    from axe_playwright_python.sync_playwright import Axe

    site = pages(T="right-token")
    site.write(region="eu", token="${T}", auth={"kind": "open"}, tags=["a"])
    narrow = browser.new_context(
        viewport={"width": 380, "height": 800}, color_scheme=scheme, bypass_csp=True
    )
    tab = entered(site, narrow)
    wrong: list[str] = []
    links: set[str] = set()
    for path in PATHS:
        tab.page.goto(site.base + path)
        tab.page.wait_for_selector("main h1, main #yaml", state="attached")
        tab.page.wait_for_timeout(100)
        if tab.page.evaluate("document.documentElement.scrollWidth") > 380:
            wrong.append(f"{path} is too wide")
        wrong += [
            f"{path}: {found['id']}: {found['nodes'][0]['html'][:200]}"
            for found in Axe().run(tab.page).response["violations"]
            if found["impact"] in ("serious", "critical")
        ]
        links |= {str(a.get_attribute("href")) for a in tab.page.locator("a[href^='/']").all()[:60]}
    assert wrong == []
    site.cookie = "; ".join(f"{c['name']}={c['value']}" for c in narrow.cookies())
    for link in sorted(links):
        assert site.ask(link).status in (200, 303), link
    narrow.close()


def test_the_keyboard_alone_reaches_what_is_there(pages: Start, context: Any) -> None:
    site = pages()
    page = entered(site, context).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen: list[str] = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert {"Pipelines", "Find a connector", "New pipeline"} <= set(seen)


def test_the_focus_stays_where_it_was_when_the_form_comes_back(pages: Start, context: Any) -> None:
    """Of elements without an id htmx forgets which one had it."""
    site = pages()
    site.write(region="eu", auth={"kind": "open"})
    page = entered(site, context).page
    page.goto(f"{site.base}/p/shop.yaml/edit")
    if page.locator("text=Show its form").count():
        page.click("text=Show its form")
    page.wait_for_selector("[name='source:token']")
    summary = page.locator("#editor form[hx-post] details[id] > summary").first
    summary.focus()
    with page.expect_response("**/p/shop.yaml/edit"):
        page.evaluate("document.querySelector('#editor form').dispatchEvent(new Event('change'))")
    page.wait_for_timeout(500)  # the answer takes the form's place
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_connector_that_hangs_keeps_no_page_waiting(pages: Start, tmp_path: Path) -> None:
    site = pages().enter()
    file = site.write(region="eu")
    (tmp_path / "hang.py").write_text("import time\ntime.sleep(600)\n")
    file.write_text(file.read_text().replace("source_shop.py", "hang.py"))
    assert site.ask("/p/shop.yaml/edit").status == 200
    assert not [*site.home.rglob("ui")]
    answered = site.ask("/p/shop.yaml/ask", "POST", {}, origin=site.base)
    assert answered.status == 303 and answered.headers["location"].startswith("/jobs/")
    assert "Asking" in site.ask(answered.headers["location"]).text
    assert site.ask("/").status == 200
    assert site.ask("/p/shop.yaml/edit?text=1").status == 200
