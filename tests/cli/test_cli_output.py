"""The one Output: text, JSON, colours, errors, traces, readers that go away."""

import io
import json
import os
import stat
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from cli_harness import Cli

from forked_cli import SCRIPT
from penstock.errors import Cancelled, ConfigError, Defect, SourceError
from penstock.terminal import format as text
from penstock.terminal.output import Output, encode_json
from penstock.terminal.progress import LineObserver, watching


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make(**changes: object) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    given = {"out": out, "err": err, "environ": {}} | changes
    return Output(**given), out, err  # type: ignore[arg-type]


def test_json_answer_is_one_document_and_nothing_else() -> None:
    output, out, err = make(as_json=True)
    output.answer({"rows": [1]}, lambda: ["text"])
    assert json.loads(out.getvalue()) == {"rows": [1]}
    assert err.getvalue() == ""


def test_text_answer_is_not_folded_where_nobody_looks() -> None:
    output, out, _ = make()
    long = "x" * 500
    output.answer({}, lambda: [text.grid(("name", "n"), [(long, 1200)], {1})])
    assert out.getvalue().splitlines() == [f"name{' ' * 496}      n", f"{long}  1,200"]


def test_json_keeps_what_python_has_no_json_for() -> None:
    value = {"nan": float("nan"), "big": Decimal("12345678901234567890.123"), "lone": "a\udcff"}
    read = json.loads(encode_json(value), parse_float=Decimal)
    assert read["nan"] is None
    assert read["lone"] == r"a\udcff"
    assert json.loads(encode_json({"big": value["big"]}), parse_float=Decimal) == {
        "big": value["big"]
    }


def test_colours_on_a_terminal_only_and_not_with_no_color() -> None:
    terminal = Terminal()
    make(err=terminal, environ={"TERM": "xterm"})[0].error(ConfigError("no"))
    plain = Terminal()
    make(err=plain, environ={"NO_COLOR": "1"})[0].error(ConfigError("no"))
    output, _, pipe = make()
    output.error(ConfigError("no"))
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[" not in pipe.getvalue()
    assert pipe.getvalue() == "Error: no\n"


def test_an_error_says_what_where_next_and_the_connectors_words() -> None:
    output, _, err = make()
    error = SourceError(
        "the source failed",
        hint="look at the password",
        where="shop.yaml:3",
        stream="users",
        connector={"message": "login refused", "failure_type": "config_error", "stack": "deep"},
    )
    assert output.error(error, log="runs/1/log.jsonl") == 4
    told = err.getvalue()
    for line in (
        "Error: the source failed",
        "  where     shop.yaml:3",
        "  stream    users",
        '  message   "login refused"',
        "  failure_type config_error",
        "  try       look at the password",
        "  log       runs/1/log.jsonl",
    ):
        assert line in told.splitlines()
    assert "deep" not in told
    verbose, _, err = make(verbosity=1)
    verbose.error(error)
    assert "deep" in err.getvalue()


def test_problems_have_a_line_each() -> None:
    output, _, err = make()
    output.error(ConfigError("2 problems", problems=["a.yaml:1: one", "a.yaml:2: two"]))
    assert err.getvalue().splitlines()[1:] == ["  - a.yaml:1: one", "  - a.yaml:2: two"]
    output, out, _ = make(as_json=True)
    output.error(ConfigError("2 problems", problems=["one", "two"]))
    assert json.loads(out.getvalue())["error"]["problems"] == ["one", "two"]


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), Defect("our fault")])
def test_a_defect_keeps_its_trace_in_a_private_file(error: Exception, tmp_path: Path) -> None:
    output, _, err = make(errors_dir=tmp_path / "errors")
    try:
        raise error
    except Exception as caught:
        assert output.error(caught) == 70
    (file,) = (tmp_path / "errors").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "Traceback" in file.read_text()
    assert f"  trace     {file}" in err.getvalue().splitlines()
    assert "Traceback" not in err.getvalue()


def test_a_trace_is_shown_at_vv_and_kept_where_the_home_refuses(tmp_path: Path) -> None:
    (tmp_path / "errors").write_text("a file is in the way")
    output, _, err = make(errors_dir=tmp_path / "errors", verbosity=2)
    assert output.error(ValueError("odd")) == 70
    assert "ValueError: odd" in err.getvalue()
    kept = next(x for x in err.getvalue().splitlines() if x.startswith("  trace"))
    Path(kept.split()[1]).unlink()


def test_ctrl_c_is_exit_7() -> None:
    assert make()[0].error(KeyboardInterrupt()) == 7
    assert make()[0].error(Cancelled("stopped")) == 7


def test_secrets_and_control_characters_do_not_reach_the_terminal() -> None:
    """L10; and a connector cannot drive the user's terminal."""
    output, _, err = make()
    output.hide(["s3cret"])
    output.error(SourceError("bad s3cret\x1b]0;title\x07", hint="s3cret \x1b[2J"))
    output.say("log: s3cret\x1b[31m")
    assert "s3cret" not in err.getvalue()
    assert "\x1b" not in err.getvalue()
    assert "\x07" not in err.getvalue()
    as_json, out, _ = make(as_json=True)
    as_json.hide(["s3cret"])
    as_json.error(SourceError("bad s3cret", connector={"message": "s3cret"}))
    assert "s3cret" not in out.getvalue()


def test_counts_are_never_masked_for_a_secret_that_is_a_number() -> None:
    output, out, err = make()
    output.hide(["3000", "true", "00042", "hunter2-3000"])
    output.say("loaded users: 3000 records, true, 00042; hunter2-3000")
    assert "loaded users: 3000 records, true, 00042; ****" in out.getvalue() + err.getvalue()


@pytest.mark.parametrize("verb", [["schema"], ["runs", "--help"], ["--help"]])
def test_a_reader_that_goes_away_is_nobodys_error(cli: Cli, verb: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [str(SCRIPT), *verb], stdout=write, stderr=subprocess.PIPE, env=cli.environ, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def on_full_disk(shop: Cli, command: str) -> tuple[int, str]:
    """The exit code and stderr of a command with redirections."""
    done = subprocess.run(
        f"'{SCRIPT}' {command}", shell=True, env=shop.environ, capture_output=True, timeout=60
    )
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("verb", ["runs --json", "runs", "list --json", "runs --help", "--help"])
def test_an_answer_that_a_full_disk_refuses_is_one_error(shop: Cli, verb: str) -> None:
    code, said = on_full_disk(shop, f"{verb} > /dev/full")
    first, hint = said.splitlines()
    assert first == "Error: the answer could not be written to stdout: No space left on device"
    assert hint.startswith("  try ") and code == 2
    assert on_full_disk(shop, f"{verb} > /dev/full 2> /dev/full") == (2, "")
    assert on_full_disk(shop, "wrong 2> /dev/full") == (2, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_an_error_that_a_full_disk_refuses_is_said_on_stderr(shop: Cli) -> None:
    code, said = on_full_disk(shop, "state export nothing --json > /dev/full")
    assert code == 2 and said.startswith("Error: ") and "nothing" in said
    assert "stdout" not in said and "Traceback" not in said


def test_json_is_utf_8_in_any_locale(shop: Cli) -> None:
    told = shop("state", "export", "shop", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert told.code == 0
    assert len(told.json) == 2


def test_closed_streams_do_no_harm(cli: Cli) -> None:
    command = f"'{SCRIPT}' list --json >&- 2>&-"
    assert subprocess.run(command, shell=True, env=cli.environ, timeout=60).returncode == 0


def test_sizes_times_and_counts() -> None:
    assert [text.size(n) for n in (0, 999, 1000, 4096, 12_345_678)] == [
        "0 B", "999 B", "1.0 kB", "4.1 kB", "12 MB",
    ]  # fmt: skip
    assert [text.seconds(s) for s in (0.04, 9.99, 59.7, 185, 7800)] == [
        "0.0 s", "10.0 s", "1 min 0 s", "3 min 5 s", "2 h 10 min",
    ]  # fmt: skip
    assert text.counted(1, "row") == "1 row"
    assert text.counted(1204, "row") == "1,204 rows"


def test_a_rate_is_told_only_where_it_tells_something() -> None:
    """Of a small run it is the time that Spark takes to start."""
    assert [text.rate(*r) for r in ((10, 37), (999, 1), (5000, 0.5), (1500, 2000))] == [None] * 4
    assert text.rate(300_000, 25) == "12,000 rows/s"


# -- progress


def test_what_a_source_expects_is_shown_beside_what_came() -> None:
    output, _, err = make()
    observer = LineObserver(output)
    observer.expected(None, 1, None)
    observer.expected(None, 2000, 5_000_000)
    observer.expected("users", None, 40_000)
    observer.stream("users", 1, 2000, 1, 0, None)
    lines = [line.split("] ")[1] for line in err.getvalue().splitlines()]
    assert lines == [
        "expected about 1 row in all",
        "expected about 2,000 rows, 5.0 MB in all",
        "read     users: 1 row, 2.0 kB of about 40 kB, 1 state",
    ]


def test_progress_off_a_terminal_is_a_line_per_event() -> None:
    output, out, err = make()
    with watching(output) as observer:
        observer.phase("start", "starting Spark")
        observer.stream("users", 10, 2000, 1, 2, 100)
        observer.stream("users", 20, 4000, 1, 2, 100)  # too soon for another line
        observer.log("WARN", "source", "slow")
        observer.log("INFO", "source", "chatty")
        observer.note("something")
    lines = [line.split("] ")[1] for line in err.getvalue().splitlines()]
    assert lines == [
        "start    starting Spark",
        "read     users: 10 rows of about 100, 2.0 kB, 1 state, 2 rejected",
        "WARN     source: slow",
        "note     something",
    ]
    assert out.getvalue() == ""


def test_quiet_shows_nothing_and_verbose_shows_info() -> None:
    output, _, err = make(verbosity=-1)
    observer = LineObserver(output)
    observer.phase("start", "x")
    observer.log("ERROR", "source", "x")
    assert err.getvalue() == ""
    output, _, err = make(verbosity=1)
    LineObserver(output).log("INFO", "source", "told")
    LineObserver(output).log("DEBUG", "source", "too much")
    assert "told" in err.getvalue()
    assert "too much" not in err.getvalue()


def test_ten_thousand_streams_do_not_flood_the_log() -> None:
    output, _, err = make()
    observer = LineObserver(output)
    for number in range(10_000):
        observer.stream(f"s{number}", 1, 10, 1, 0, None)
    assert len(err.getvalue().splitlines()) <= 31


def test_bars_are_drawn_on_a_terminal_and_gone_at_the_end() -> None:
    terminal = Terminal()
    output, _, _ = make(err=terminal, environ={"NO_COLOR": "1"})
    with watching(output) as observer:
        observer.phase("start", "starting Spark")
        for number in range(100):
            observer.stream(f"s{number}", 5, 10, 1, 0, 10)
        observer.log("WARN", "source", "slow [bold]not markup[/bold]")
        observer.note("a note")
    shown = terminal.getvalue()
    assert "WARN source: slow [bold]not markup[/bold]" in shown
    assert "note: a note" in shown
    assert "s99" not in shown


def test_python_dash_m_prints_no_traceback_for_a_broken_home(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = cli("-m", "penstock", "list", "--home", str(tmp_path / "file" / "x"),
               script=[sys.executable])  # fmt: skip
    assert told.code == 2
    assert "Traceback" not in told.err
    assert "--home" in told.err
