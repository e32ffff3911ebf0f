"""The grammar of CONNECTOR (command-line contract), and what is said of wrong forms."""

import pytest

from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("airbyte:source-faker", "source-faker", None),
        ("airbyte:source-faker@7.2.1", "source-faker", "7.2.1"),
        (" airbyte:source-faker@7.2.1rc1 ", "source-faker", "7.2.1rc1"),
        ("airbyte:Source_Faker", "source-faker", None),
        ("airbyte:faker", "faker", None),
    ],
)
def test_packages(text: str, name: str, version: str | None) -> None:
    ref = parse_ref(text)
    assert (ref.kind, ref.protocol) == (RefKind.package, "airbyte")
    assert (ref.name, ref.version) == (name, version)


@pytest.mark.parametrize(
    ("text", "kind", "command"),
    [
        ("airbyte:./stub.py", RefKind.path, ("./stub.py",)),
        ("airbyte:../stub.py", RefKind.path, ("../stub.py",)),
        ("airbyte:/opt/stub", RefKind.path, ("/opt/stub",)),
        ("airbyte:~/stub", RefKind.path, ("~/stub",)),
        ("airbyte:'./my dir/stub'", RefKind.path, ("./my dir/stub",)),
        ("airbyte:python stub.py --fast", RefKind.command, ("python", "stub.py", "--fast")),
        ('airbyte:"python stub.py"', RefKind.command, ("python", "stub.py")),
        (
            "airbyte:./stub.py --with '{\"a\": 1}'",
            RefKind.command,
            ("./stub.py", "--with", '{"a": 1}'),
        ),
        ("airbyte:sh -c 'echo $HOME | cat'", RefKind.command, ("sh", "-c", "echo $HOME | cat")),
    ],
)
def test_paths_and_commands(text: str, kind: RefKind, command: tuple[str, ...]) -> None:
    ref = parse_ref(text)
    assert (ref.kind, ref.protocol, ref.command) == (kind, "airbyte", command)


@pytest.mark.parametrize(
    ("text", "format", "target"),
    [
        ("parquet:./lake", "parquet", "./lake"),
        ("delta:s3a://bucket/lake", "delta", "s3a://bucket/lake"),
        ("parquet", "parquet", None),
    ],
)
def test_tables(text: str, format: str, target: str | None) -> None:
    ref = parse_ref(text)
    assert (ref.kind, ref.format, ref.target) == (RefKind.table, format, target)


def test_spark_query() -> None:
    assert parse_ref("spark:SELECT 1 AS a").target == "SELECT 1 AS a"


@pytest.mark.parametrize(
    ("text", "name", "version", "file"),
    [
        ("source-postgres", "source-postgres", None, ()),
        ("acme/dest-postgres@v1.2", "acme/dest-postgres", "1.2", ()),
        ("rapidbyte:anything", "anything", None, ()),
        ("rapidbyte:./a b.wasm", None, None, ("./a b.wasm",)),
        ("../x/source.wasm", None, None, ("../x/source.wasm",)),
    ],
)
def test_a_component_is_a_file_or_a_name_as_rapidbyte_files_have_it(
    text: str, name: str | None, version: str | None, file: tuple[str, ...]
) -> None:
    ref = parse_ref(text)
    assert (ref.kind, ref.protocol) == (RefKind.component, "rapidbyte")
    assert (ref.name, ref.version, ref.command) == (name, version, file)


def test_text_is_kept() -> None:
    assert isinstance(parse_ref("airbyte:source-faker@7.2.1"), ConnectorRef)
    assert parse_ref("airbyte:source-faker@7.2.1").text == "airbyte:source-faker@7.2.1"


@pytest.mark.parametrize(
    ("image", "name", "version"),
    [
        ("airbyte/source-faker:7.2.1", "airbyte/source-faker", "7.2.1"),
        ("source-faker", "source-faker", None),
        ("registry.corp:5000/team/tap_x:1", "registry.corp:5000/team/tap_x", "1"),
        ("localhost/x@sha256:" + "0" * 64, "localhost/x", "sha256:" + "0" * 64),
        ("a/b:1@sha256:" + "f" * 64, "a/b", "1"),
    ],
)
def test_images_of_any_registry(image: str, name: str, version: str | None) -> None:
    ref = parse_ref(f"singer:docker:{image}")
    assert (ref.kind, ref.protocol, ref.target) == (RefKind.image, "singer", image)
    assert (ref.name, ref.version) == (name, version)


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("", "connector.reference", "PROTOCOL:NAME"),
        ("airbyte:", "connector.reference", "airbyte:NAME"),
        ("airbyte", "connector.reference", "airbyte:NAME"),
        ("airbite:source-faker", "connector.reference", "airbyte:source-faker"),
        ("airbyte/source-faker:7.2.1", "connector.reference", "airbyte:source-faker@7.2.1"),
        ("airbyte:airbyte-source-faker", "connector.reference", "airbyte:source-faker"),
        ("airbyte:source-faker==7.2.1", "connector.reference", "airbyte:source-faker@7.2.1"),
        ("airbyte:source-faker:7.2.1", "connector.reference", "airbyte:source-faker@7.2.1"),
        ("airbyte:source-faker@", "connector.reference", "@1.2.3"),
        ("airbyte:source-faker@>=7", "connector.reference", "@1.2.3"),
        ("airbyte:stubs/stub.py", "connector.reference", "airbyte:./stubs/stub.py"),
        ("airbyte:stub.py", "connector.reference", "airbyte:./stub.py"),
        ("./stub.py", "connector.reference", "airbyte:"),
        ("airbyte:python 'x", "connector.reference", "quote"),
        ("airbyte:docker:", "connector.reference", "airbyte:docker:IMAGE"),
        ("airbyte:docker:Source:7:8", "connector.reference", "airbyte:docker:IMAGE"),
        ("airbyte:docker:-x", "connector.reference", "airbyte:docker:IMAGE"),
        ("syncmaven:dist/index.js", "connector.reference", "syncmaven:./EXECUTABLE"),
        ("syncmaven:Hubspot@1.0.0", "connector.reference", "syncmaven:docker:IMAGE"),
        ("syncmaven:hubspot@^1", "connector.reference", "NAME[@VERSION]"),
        (
            "iceberg:cat.ns",
            "connector.reference",
            "known: airbyte, singer, syncmaven, rapidbyte, spark",
        ),
        ("postgres://u:p@h/db", "connector.reference", "known: airbyte"),
        ("tap-postgres", "connector.reference", "singer:tap-postgres"),
        ("meltanolabs-target-x", "connector.reference", "singer:meltanolabs-target-x"),
        ("parquet:", "connector.reference", "parquet:./lake"),
        ("parket:./lake", "connector.reference", "parquet:./lake"),
        ("parqet", "connector.reference", "parquet:"),
        ("zzz:y", "connector.reference", "known:"),
    ],
)
def test_wrong_forms_say_what_was_probably_meant(text: str, code: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ref(text)
    assert caught.value.code == code
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("github", "did you mean airbyte:source-github ? `penstock search github` shows all"),
        ("gihub", "did you mean airbyte:source-github ? `penstock search github` shows all"),
        ("tap-github", "did you mean singer:tap-github ?"),
        ("tap-csv", "did you mean singer:git+https://github.com/MeltanoLabs/tap-csv.git ?"),
    ],
)
def test_a_word_alone_is_looked_for_in_the_index(text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ref(text)
    assert caught.value.hint == hint


def test_a_word_that_the_index_lacks_is_told_all_forms() -> None:
    for text in ("zzzqqqxxx", "z" * 5000):
        with pytest.raises(ConfigError) as caught:
            parse_ref(text)
        assert "PROTOCOL:NAME" in str(caught.value.hint)
        assert "`penstock search WORDS` finds connectors" in str(caught.value.hint)
