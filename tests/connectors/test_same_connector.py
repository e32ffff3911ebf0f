"""L1: which references are one connector, as users change them."""

from pathlib import Path

import pytest

from penstock.connectors.reference import parse_ref
from penstock.connectors.same_connector import is_same, lasting, shown


def same(before: str, now: str, here: Path = Path("/nowhere"), there: Path | None = None) -> bool:
    """``before`` was kept by a run in ``there``; the next is in ``here``."""
    return is_same(lasting(parse_ref(before), there or here), parse_ref(now), here)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("airbyte:source-x", "airbyte:source-x@2.0.0", True),
        ("airbyte:source-x@1.0", "airbyte:source_X", True),
        ("airbyte:source-x", "airbyte:source-y", False),
        ("singer:tap-x", "airbyte:tap-x", False),
        ("singer:tap-x", "singer:meltanolabs-tap-x", False),
        ("singer:git+https://h/me/tap-x@v1", "singer:git+https://h/me/tap-x@v2", True),
        ("singer:git+https://h/me/tap-x", "singer:git+https://h/me/tap-y", False),
        ("singer:tap-x", "singer:git+https://h/me/tap-x", True),
        ("rapidbyte:source-postgres@v1", "source-postgres", True),
        ("rapidbyte:./source-x-1.2.0.wasm", "rapidbyte:./source-x-1.3.0.wasm", True),
        ("rapidbyte:./source-x.wasm", "rapidbyte:./source-y.wasm", False),
        ("rapidbyte:./source-x.wasm", "rapidbyte:source-x", False),
        ("airbyte:./source.py", "airbyte:source-x", False),
        ("singer:'python tap.py --log debug'", "singer:'python3.12 -u tap.py --log info'", True),
        ("singer:'python /a/tap.py'", "singer:/a/tap.py", True),
        ("singer:'python -m tap_a'", "singer:'python -m tap_b'", False),
        ("singer:python -m tap_a -v", "singer:/venv/bin/python -m tap_a", True),
        ("singer:'sh -c \"one\"'", "singer:'sh -c \"two\"'", False),
        ("singer:'uvx tap-a'", "singer:'uvx tap-b'", False),
        ("singer:'/opt/tap sync'", "singer:'/opt/tap other'", False),
    ],
)
def test_l1_one_connector_or_another(before: str, now: str, expected: bool) -> None:
    assert same(before, now) is expected


def test_l1_files_are_compared_by_their_places(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "tap.py").touch()
    for use in ("singer:./tap.py", "singer:'python tap.py'", "singer:'python ./tap.py --x 1'"):
        assert same(use, use, one, one)
        assert same(use, f"singer:'python {one}/tap.py'", two, one)
        assert not same(use, use, two, one)  # another project's
    (one / "link.py").symlink_to(two / "tap.py")
    assert same("singer:./tap.py", "singer:./link.py", one, two)
    (one / "tap.py").unlink()
    assert same("singer:./tap.py", "singer:./tap.py", two, one)  # the checkout was moved
    assert not same("singer:./tap.py", "singer:./other.py", two, one)


def test_l10_a_command_is_not_shown() -> None:
    assert shown("singer:tap-x@1") == "singer:tap-x@1"
    assert shown("singer:./tap.py") == "singer:./tap.py"
    for text in (
        "singer:'sh -c \"PASSWORD=secret tap\"'",
        "singer:/opt/tap --password secret",
        "singer:'/opt/tap --password secret'",
        "singer:git+https://me:secret@example.com/tap-x@v1",
    ):
        assert "secret" not in shown(text)
    assert "tap" in shown("singer:/opt/tap --password secret")
    assert is_same("", parse_ref("singer:tap-x"), Path("/"))
