"""Who may ask the pages of ``penstock ui``: each rule by an attack on the real server."""

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from web_harness import Pages

from penstock.web.security import Gate

Start = Callable[..., Pages]


def test_without_the_address_nothing_is_shown_and_the_token_is_spent_once(pages: Start) -> None:
    site = pages()
    for path in ("/", "/runs", "/machine", "/static/style.css", "/p/shop.yaml/edit"):
        assert site.ask(path).status == 403
    assert site.ask("/open?token=guess").status == 403
    # what is refused does not spend it
    assert site.ask(site.address.removeprefix(site.base), host="evil.example").status == 403
    assert site.enter().ask("/").status == 200
    other = site.cookie
    assert site.ask(site.address.removeprefix(site.base), cookie="").status == 403
    assert site.ask("/", cookie=other).status == 200


def test_the_cookie_is_strict_and_no_script_reads_it(pages: Start) -> None:
    site = pages()
    answered = site.ask(site.address.removeprefix(site.base))
    cookie = answered.headers["set-cookie"].lower()
    assert "samesite=strict" in cookie and "httponly" in cookie and "path=/" in cookie
    assert f"penstock_{site.port}=" in cookie  # two servers of one machine share no cookie


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil:{port}",
                                  "127.0.0.1:1", ""])  # fmt: skip
def test_another_host_name_is_refused(pages: Start, host: str) -> None:
    """DNS rebinding: a page of evil.example whose name leads here now."""
    site = pages().enter()
    assert site.ask("/", host=host.format(port=site.port)).status == 403


def test_a_change_from_another_origin_is_refused(pages: Start) -> None:
    site = pages().enter()
    file = site.write(region="eu")
    before = file.read_bytes()
    form: dict[str, object] = {"text": "pipeline: x\n", "mark": "x"}
    attacks = ({"origin": "http://evil.example"}, {"origin": "null"},
               {"origin": f"http://127.0.0.1:{site.port + 1}"},
               {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"})  # fmt: skip
    for headers in attacks:
        for path in ("/p/shop.yaml/text", "/p/shop.yaml/run", "/machine/spark/stop", "/new"):
            assert site.ask(path, "POST", form, **headers).status == 403, (path, headers)
    assert file.read_bytes() == before
    good = site.ask("/machine/spark/stop", "POST", {}, origin=site.base)
    assert good.status == 303


def test_a_link_changes_nothing(pages: Start) -> None:
    """Whatever changes something is asked by POST."""
    site = pages().enter()
    site.write(region="eu")
    changing = ("run", "discover", "text", "state/change")
    for path in (
        *(f"/p/shop.yaml/{p}" for p in changing),
        "/machine/doctor",
        "/machine/spark/start",
        "/machine/spark/stop",
    ):
        assert site.ask(path).status in (404, 405)


def test_every_answer_forbids_foreign_scripts_and_frames(pages: Start) -> None:
    site = pages().enter()
    for path in ("/", "/find?words=github", "/nothing", "/static/htmx.min.js", "/favicon.ico"):
        policy = site.ask(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    refused = site.ask("/", cookie="")
    assert "default-src 'none'" in refused.headers["content-security-policy"]


@pytest.mark.parametrize(
    "name", ["..%2Fsecret.yaml", "%2e%2e%2fsecret.yaml", "..%5csecret.yaml", "%2Fetc%2Fpasswd",
             "link.yaml", "sub%2Finner.yaml", ".env", "%00.yaml"],
)  # fmt: skip
def test_no_path_leads_out_of_the_folder(pages: Start, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.yaml").write_text("pipeline: hidden-words\n")
    site = pages().enter()
    (site.folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (site.folder / "sub").mkdir()
    (site.folder / "sub" / "inner.yaml").write_text("pipeline: hidden-words\n")
    (site.folder / ".env").write_text("A=hidden-words\n")
    for page in ("edit?text=1", "edit", "runs", "rejects", "rejects/download", "check"):
        answered = site.ask(f"/p/{name}/{page}")
        assert answered.status in (400, 404), page
        assert "hidden-words" not in answered.text
    wrote = site.ask(f"/p/{name}/text", "POST", {"text": "pipeline: x\n", "mark": ""})
    assert wrote.status in (400, 404)
    assert (tmp_path / "secret.yaml").read_text() == "pipeline: hidden-words\n"
    assert "root:" not in site.ask("/static/..%2F..%2F..%2F..%2Fetc%2Fpasswd").text


def test_the_rows_page_reads_no_table_that_no_run_wrote(pages: Start) -> None:
    site = pages().enter()
    site.write(region="eu")
    answered = site.ask("/p/shop.yaml/rows?table=/etc")
    assert answered.status == 200 and "passwd" not in answered.text


def test_the_words_of_a_connector_are_escaped(pages: Start) -> None:
    site = pages().enter()
    site.write(region="<img src=x onerror=alert(3)>", token="${T}", auth={"kind": "open"})
    answered = site.edit_page()
    assert "Where it is." in answered and "alert(1)" in answered
    assert "<script>alert" not in answered and "javascript:" not in answered
    assert "<img" not in answered


def test_only_this_machine_is_served_unless_there_is_a_password(
    pages: Start, tmp_path: Path
) -> None:
    site = pages()
    with socket.socket() as outside:
        try:
            address = socket.gethostbyname(socket.gethostname())
        except OSError:
            address = "127.0.0.1"
        if not address.startswith("127."):
            outside.settimeout(2)
            assert outside.connect_ex((address, site.port)) != 0
    words = [sys.executable, "-m", "penstock", "ui", str(site.folder), "--no-open", "--json"]
    env = {k: v for k, v in os.environ.items() if k != "PENSTOCK_UI_PASSWORD"}
    for given in ({}, {"PENSTOCK_UI_PASSWORD": "short"}):
        done = subprocess.run([*words, "--host", "0.0.0.0"], env=env | given, capture_output=True,
                              text=True, timeout=60)  # fmt: skip
        assert done.returncode == 2 and '"ui.password"' in done.stdout


def test_a_cookie_that_another_server_of_this_machine_got_opens_nothing_for_its_user(
    pages: Start,
) -> None:
    """A browser sends it to every port of the host."""
    site = pages().enter()
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    code = (
        "import os,http.client;os.setgid(65534);os.setuid(65534);"
        f"c=http.client.HTTPConnection('127.0.0.1',{site.port});"
        f"c.request('GET','/machine',headers={{'cookie':{site.cookie!r}}});"
        "print(c.getresponse().status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == "403", done.stderr
    assert site.ask("/machine").status == 200


@pytest.mark.parametrize(
    "other", ['{0}; broken={{"a": 1}}', 'x=[a"b; {0}', "a b; {0}", "penstock_1=y; {0}; {1}=junk",
              "{1}=junk; {0}"],
)  # fmt: skip
def test_the_cookies_of_other_servers_keep_nobody_out(pages: Start, other: str) -> None:
    site = pages().enter()
    name = site.cookie.partition("=")[0]
    assert site.ask("/", cookie=other.format(site.cookie, name)).status == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:80"])
def test_a_browser_leaves_out_port_80(host: str) -> None:
    assert Gate("127.0.0.1", 80).knows_host(host)
    assert not Gate("127.0.0.1", 81).knows_host(host)
    assert not Gate("127.0.0.1", 80).knows_host("evil.example")


def test_a_proxy_with_tls_before_it_is_no_other_origin(pages: Start) -> None:
    """A browser says by a header of its own that page and server are one."""
    site = pages().enter()
    headers = {"origin": "https://pages.example", "sec_fetch_site": "same-origin"}
    assert site.ask("/machine/spark/stop", "POST", {}, **headers).status == 303


def test_wrong_guesses_keep_the_right_user_waiting_and_not_out(pages: Start) -> None:
    site = pages("--host", "0.0.0.0", PENSTOCK_UI_PASSWORD="a-long-password")

    def guess(password: str) -> int:
        form: dict[str, object] = {"password": password}
        return site.ask("/login", "POST", form, origin=site.base).status

    with ThreadPoolExecutor(10) as threads:
        guesses = [threads.submit(guess, f"wrong-password-{n}") for n in range(6)]
        time.sleep(0.2)
        began = time.monotonic()
        assert guess("a-long-password") == 200
        assert time.monotonic() - began > 1.0  # a guess costs time, however many ask at once
        assert {g.result() for g in guesses} == {403}


def test_beyond_this_machine_the_password_opens_and_a_guess_does_not(pages: Start) -> None:
    site = pages("--host", "0.0.0.0", PENSTOCK_UI_PASSWORD="a-long-password")
    assert "password" in site.ask("/").text.lower()
    guess = site.ask("/login", "POST", {"password": "another-password"}, origin=site.base)
    assert guess.status == 403 and "set-cookie" not in guess.headers and "is wrong" in guess.text
    opened = site.ask("/login", "POST", {"password": "a-long-password"}, origin=site.base)
    assert opened.status == 200
    cookie = opened.headers["set-cookie"].partition(";")[0]
    assert site.ask("/", cookie=cookie).status == 200
    assert site.ask("/", cookie=cookie, host=f"evil.example:{site.port}").status == 403


def test_another_user_of_the_machine_gets_nothing(pages: Start) -> None:
    site = pages(forked=False)
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    code = (
        "import os,sys,http.client;os.setgid(65534);os.setuid(65534);"
        f"c=http.client.HTTPConnection('127.0.0.1',{site.port});c.request('GET','/');"
        "print(c.getresponse().status);"
        f"print(os.path.exists('/proc/{site.process.pid}/cmdline') and "
        f"open('/proc/{site.process.pid}/cmdline').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("403"), done.stderr
    token = site.address.rpartition("=")[2]
    assert token not in done.stdout
    site.enter().ask("/")
    assert stat.S_IMODE(site.home.stat().st_mode) == 0o700


def test_a_body_without_end_is_refused(pages: Start) -> None:
    site = pages().enter()
    answered = site.ask("/p/shop.yaml/text", "POST", content_length=str(1 << 40))
    assert answered.status == 403
