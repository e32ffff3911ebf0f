"""``penstock search`` and ``info``: what they print, their JSON, and their errors."""

import gzip
import sys
from pathlib import Path

import pytest
from cli_harness import SOURCE, Cli

from penstock.connectors.catalog import index
from penstock.connectors.catalog.index import ConnectorIndex, IndexedConnector
from penstock.errors import ConnectorError

KEYS = [
    "connector", "protocol", "role", "name", "label", "variant", "maintenance", "quality",
    "default", "version", "month", "needs", "also", "extras", "runs_here", "lacks", "repository",
    "keywords", "capabilities", "settings", "required",
]  # fmt: skip
NO_ENGINE = {"PENSTOCK_CONTAINER_ENGINE": "no-such-engine"}


def test_a_hit_says_what_to_write_and_what_it_needs(cli: Cli) -> None:
    found = cli("search", "github")
    first, about, *_ = found.out.splitlines()
    assert found.code == 0 and first == "airbyte:source-github"
    assert about.startswith("    GitHub, source, package 2.")
    assert "7 settings (2 secret), runs here" in about
    assert found.out.splitlines()[-1] == "next: penstock info airbyte:source-github"


def test_the_json_of_a_search_has_its_keys(cli: Cli) -> None:
    answer = cli("search", "postgres", "--role", "destination", "--json").json
    assert list(answer) == ["words", "role", "found", "connectors", "tables"]
    assert (answer["words"], answer["role"]) == ("postgres", "destination")
    assert answer["found"] == len(answer["connectors"]) > 5, "JSON has all"
    first = answer["connectors"][0]
    assert list(first) == KEYS
    assert (first["connector"], first["needs"], first["runs_here"], first["lacks"]) == (
        "singer:meltanolabs-target-postgres", "package", True, []
    )  # fmt: skip
    assert list(first["settings"][0]) == [
        "name", "kind", "label", "secret", "default", "options", "required"
    ]  # fmt: skip


def test_tables_that_penstock_writes_itself_come_first(cli: Cli) -> None:
    found = cli("search", "Delta")
    assert found.out.splitlines()[0] == "delta:PATH"
    assert cli("search", "parquet", "--json").json["tables"] == ["parquet:PATH"]
    assert cli("search", "parquet", "--role", "source", "--json").json["tables"] == []
    assert cli("search", "delta", "zzzqqq", "--json").json["connectors"] == []


def test_a_search_shows_the_best_ones_and_how_many_there_are(cli: Cli) -> None:
    few = cli("search", "google", "--limit", "2").out
    assert few.splitlines()[0] == "airbyte:source-google-ads"
    assert few.count("\n    ") == 2 and "more; --limit 65 shows all" in few
    assert cli("search", "google", "--limit", "65").out.count("\n    ") == 65
    assert len(cli("search", "google", "--limit", "2", "--json").json["connectors"]) == 2


def test_what_this_machine_lacks_is_said_with_its_fix(cli: Cli) -> None:
    found = cli("search", "db2", **NO_ENGINE)
    assert "does not run here (containers)" in found.out
    assert "lacks containers (1 connector): no container engine answers" in found.out
    assert "  fix: install Docker or Podman" in found.out
    (hit,) = [
        each
        for each in cli("search", "db2", "--json", **NO_ENGINE).json["connectors"]
        if each["needs"] == "image"
    ]
    assert hit["runs_here"] is False and [each["name"] for each in hit["lacks"]] == ["containers"]


def test_without_git_a_repository_does_not_run_here(cli: Cli, tmp_path: Path) -> None:
    found = cli("info", "singer:git+https://github.com/MeltanoLabs/tap-csv.git", PATH=str(tmp_path))
    assert "runs here     no" in found.out
    assert "lacks git (1 connector): git is not installed" in found.out


def test_info_marks_secrets_and_what_is_required(cli: Cli) -> None:
    found = cli("info", "singer:tap-github")
    table = found.out.partition("\n\n")[0]
    rows = {line.split()[0]: line.split() for line in table.splitlines()}
    assert rows["access_token"][:4] == ["access_token", "password", "yes", "secret"]
    assert rows["repository"][2] == "yes" and "secret" not in rows["repository"]
    assert "next: penstock new singer:tap-github parquet:./lake" in found.out
    answer = cli("info", "singer:tap-github@1.0", "--json").json
    assert list(answer) == ["connector", "others"]
    secret = {each["name"]: each["secret"] for each in answer["connector"]["settings"]}
    assert secret["access_token"] is True and secret["repository"] is False
    assert answer["others"][0]["connector"] == "airbyte:source-github"


def test_info_of_a_destination_and_of_one_without_settings(cli: Cli) -> None:
    target = cli("info", "singer:meltanolabs-target-postgres").out
    assert "next: penstock spec singer:meltanolabs-target-postgres --role destination" in target
    bare = cli("info", "singer:target_postgres").out
    assert "the index has no settings for it" in bare
    assert "try: penstock spec singer:target-postgres --role destination" in bare


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (["search", "gihub"], "connector.none_found", "penstock search github"),
        (["search", "zzzqqqxxx"], "connector.none_found", "try one word"),
        (["search", "faker", "--role", "destination"], "connector.none_found", "there is a source"),
        (["search", "github", "--role", "both"], "usage", "penstock search --help"),
        (["search"], "usage", "penstock search --help"),
        (["info", "singer:tap-gihub"], "connector.not_indexed", "singer:tap-github"),
        (["info", "singer:tap-csv"], "connector.not_indexed", "singer:git+https://github.com"),
        (["info", "airbyte:source-of-all-evil"], "connector.not_indexed", "`penstock spec`"),
        (["info", "source-postgres"], "connector.not_indexed", "docker:airbyte/source-postgres"),
        (["info", "parquet:./lake"], "connector.not_indexed", "a table"),
        (["info", "airbyte:./mine"], "connector.not_indexed", "`penstock spec`"),
        (["info", "airbite:source-x"], "connector.reference", "airbyte:source-x"),
    ],
)
def test_errors_say_what_to_do_next(cli: Cli, words: list[str], code: str, hint: str) -> None:
    done = cli(*words, "--json")
    assert (done.code, done.error["code"]) == (2, code)
    assert hint in done.error["hint"]


def test_a_hint_is_a_command_that_runs_as_printed(cli: Cli) -> None:
    for words in (["gihub"], ["faker", "--role", "destination"]):
        hint = cli("search", *words, "--json").error["hint"]
        command = hint.partition(": penstock ")[2].split(" or ")[0].split()
        assert cli(*command).code == 0, hint


def test_a_command_with_a_password_is_not_repeated(cli: Cli) -> None:
    done = cli("info", "airbyte:python source.py --password hush-hush")
    assert done.code == 2 and "hush" not in done.out + done.err  # L10


def test_control_characters_of_words_and_of_the_index_are_escaped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import msgspec

    from penstock.cli import main

    evil = IndexedConnector(
        protocol="singer", role="source", name="tap-evil", connector="singer:tap-evil",
        label="\x1b[2Jevil\nsinger:tap-good", variant="\u202elive",
        settings=[index.Setting(name="a\x1b", label="\x07")],
    )  # fmt: skip
    path = tmp_path / "index.json.gz"
    path.write_bytes(gzip.compress(msgspec.json.encode(ConnectorIndex(1, 1, [evil]))))
    monkeypatch.setattr(index, "FILE", path)
    forget(monkeypatch)
    assert main(["search", "evil"]) == 0 and main(["info", "singer:tap-evil"]) == 0
    assert main(["search", "\x1b[31mred"]) == 2
    said = "".join(capsys.readouterr())
    assert "\\x1b[2J" in said and "\\x1b[31m" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert "\nsinger:tap-good" not in said


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this test have an index of its own: what is kept of the shipped one is set aside."""
    from functools import cache

    from penstock.connectors.catalog import search, suggest

    monkeypatch.setattr(index, "indexed", cache(index.indexed.__wrapped__))
    monkeypatch.setattr(search, "indexed", index.indexed)
    monkeypatch.setattr(suggest, "indexed", index.indexed)
    for name in ("_shared", "_all_matched", "_references", "_newest"):
        monkeypatch.setattr(search, name, cache(getattr(search, name).__wrapped__))


@pytest.mark.parametrize("body", [b"", b"torn"])
def test_a_damaged_index_is_an_error_and_others_keep_theirs(
    body: bytes,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from penstock.cli import main

    path = tmp_path / "index.json.gz"
    path.write_bytes(body)
    monkeypatch.setattr(index, "FILE", path)
    forget(monkeypatch)
    assert main(["search", "github"]) == 2
    said = capsys.readouterr().err
    assert str(path) in said and "install Penstock again" in said
    assert main(["spec", "github"]) == 2
    assert "does not name its protocol" in capsys.readouterr().err


def test_no_other_verb_reads_the_index(cli: Cli) -> None:
    code = (
        "import sys; from penstock.cli import main; "
        f"main(['plan', {SOURCE!r}, 'parquet:./lake']); main(['list']); "
        "print(*sorted(m for m in sys.modules if m.startswith('penstock.connectors.catalog')))"
    )
    assert cli("-c", code, script=[sys.executable]).out.splitlines()[-1] == ""


def test_a_search_loads_no_spark(cli: Cli) -> None:
    code = (
        "import sys; from penstock.cli import main; main(['search', 'github']); "
        "main(['info', 'airbyte:source-github']); "
        "print(*sorted({'pyspark', 'pyarrow', 'duckdb', 'sqlalchemy'} & sys.modules.keys()))"
    )
    assert cli("-c", code, script=[sys.executable]).out.splitlines()[-1] == ""


def test_a_missing_uv_is_what_packages_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.connectors import uv
    from penstock.connectors.catalog.search import named
    from penstock.engine.inspect.runs_here import ThisMachine

    def gone() -> str:
        raise ConnectorError("uv is not installed", code="connector.uv_missing", hint="pip install")

    monkeypatch.setattr(uv, "find_uv", gone)
    entry = named("airbyte:source-github")
    assert entry is not None
    (lack,) = ThisMachine().lacks(entry)
    assert (lack.name, lack.detail, lack.fix) == ("uv", "uv is not installed", "pip install")


def test_list_available_has_every_connector_once(cli: Cli) -> None:
    answer = cli("list", "--available", "--json").json
    assert len(answer) > 1500 and list(answer[0]) == KEYS
    shown = [each["connector"] for each in answer if each["connector"]]
    assert len(set(shown)) == len(shown)
    assert "\nairbyte:source-github\n" in cli("list", "--available").out
