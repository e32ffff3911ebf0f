"""Homes that share the state store and not the log (L3): a load that one of them wrote down can be
finished by that one alone. The other is sent there, and no hint doubles or loses a row.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipelines import Site

from penstock.errors import LogError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
APPEND = {"destination_sync_mode": "append"}


def beside(one: Site) -> Site:
    """Another home of the same pipeline: with the same store and tables, and a log of its own."""
    other = Site(one.folder / "other", one.format, streams=1)
    other.lake = one.lake
    other.home.path.mkdir(parents=True)
    (other.home.path / "state.db").symlink_to(one.home.path / "state.db")
    return other


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L3_another_homes_load_is_left_to_it_and_no_row_is_doubled(
    site: MakeSite, format: str
) -> None:
    one = site(format, streams=1)
    other = beside(one)

    def run(here: Site, records: int) -> Any:
        return here.run({"records": records}, defaults=APPEND)

    assert run(one, 20).exit_code == 0
    assert run(other, 30).exit_code == 0, "nothing waits in the other log"
    lake, aside = one.lake, one.folder / "aside"
    lake.rename(aside)
    lake.mkdir()
    (lake / "s0").write_text("not a folder")
    failed = run(one, 50)
    assert failed.exit_code == 5, failed.error
    shutil.rmtree(lake)
    aside.rename(lake)
    for _ in range(2):
        with pytest.raises(LogError) as told:
            run(other, 60)
        assert (told.value.exit_code, told.value.code) == (6, "log.elsewhere")
    words = f"{told.value.message} {told.value.hint}"
    assert str(one.home.path) in words and f"{one.home.path}/log/e2e" in words, words
    assert "`log.path`" in words and "reset" not in words, words
    assert one.seqs("s0") == list(range(1, 31))
    # the first way out, as it says: there
    assert run(one, 50).exit_code == 0
    assert one.seqs("s0") == list(range(1, 51))
    assert run(other, 60).exit_code == 0
    assert one.seqs("s0") == list(range(1, 61))


def test_L3_the_log_is_brought_to_storage_that_both_share(site: MakeSite) -> None:
    one = site("parquet", streams=1)
    other = beside(one)
    one.lake.mkdir()
    (one.lake / "s0").write_text("not a folder")
    assert one.run({"records": 20}, defaults=APPEND).exit_code == 5
    (one.lake / "s0").unlink()
    with pytest.raises(LogError) as told:
        other.run({"records": 30}, defaults=APPEND)
    folder = re.search(r"bring the folder (\S+),", str(told.value.hint))
    assert folder is not None, told.value.hint
    shutil.copytree(folder[1], one.folder / "logs" / Path(folder[1]).name)
    log = {"path": str(one.folder / "logs")}
    assert other.run({"records": 30}, defaults=APPEND, log=log).exit_code == 0
    assert one.run({"records": 40}, defaults=APPEND, log=log).exit_code == 0
    assert one.seqs("s0") == list(range(1, 41))
