"""Native code is kept and loaded only where nobody else can write (L10)."""

import os
from pathlib import Path

import pytest

from penstock.runtimes.contract import Component
from penstock.runtimes.wasm.compile_cache import CompileCache, take_problems
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.runtimes.wasm.contract import Trap, TrapKind

TEXT = b'(component (core module $m (func (export "f"))) (core instance (instantiate $m)))'


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.cwasm"))


def test_compiled_once_and_kept_for_this_user_alone(tmp_path: Path):
    folder = tmp_path / "kept"
    CompileCache(folder).component(TEXT)
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = kept(folder)
    assert file.stat().st_mode & 0o077 == 0
    before = file.stat().st_mtime_ns
    cache = CompileCache(folder)
    assert cache.component(TEXT) is cache.component(TEXT)
    assert file.stat().st_mtime_ns == before
    assert not list(folder.glob(".making-*"))


def test_a_damaged_file_is_made_again(tmp_path: Path):
    CompileCache(tmp_path / "kept").component(TEXT)
    (file,) = kept(tmp_path / "kept")
    file.write_bytes(b"rubbish")
    CompileCache(tmp_path / "kept").component(TEXT)
    assert file.read_bytes()[:7] != b"rubbish"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, mode: int):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    cache = CompileCache(folder)
    assert cache.problem is not None and "other users" in cache.problem
    cache.component(TEXT)
    assert not kept(folder)


def test_nor_one_below_a_folder_that_others_can_write(tmp_path: Path):
    above = tmp_path / "shared"
    above.mkdir()
    above.chmod(0o777)
    assert CompileCache(above / "mine").problem is not None
    above.chmod(0o1777)  # sticky, like /tmp: others cannot replace what is ours
    assert CompileCache(above / "mine").problem is None


def test_a_file_that_others_can_write_or_a_link_is_not_loaded(tmp_path: Path):
    folder = tmp_path / "kept"
    CompileCache(folder).component(TEXT)
    (file,) = kept(folder)
    content = file.read_bytes()
    file.chmod(0o666)
    CompileCache(folder).component(TEXT)
    assert file.stat().st_mode & 0o022 == 0  # made again, in its place
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(content)
    file.unlink()
    os.symlink(elsewhere, file)
    CompileCache(folder).component(TEXT)
    assert not file.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path):
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 12345)
    cache = CompileCache(folder)
    assert cache.problem is not None and "another user" in cache.problem


def test_what_is_no_component_is_refused():
    with pytest.raises(Trap) as caught:
        CompileCache(None).component(b"\0asm\x0d\0\x01\0rubbish")
    assert caught.value.kind is TrapKind.refused


def test_a_cache_that_cannot_be_made_is_told_once_and_everything_runs(tmp_path: Path):
    """Also through the runtime of a connector, which names the folder."""
    take_problems()
    (tmp_path / "file").write_text("in its way")
    folder = tmp_path / "file" / "compiled"
    component = Component(path="x.wasm", digest="", cache=str(folder))
    for _ in range(2):
        cache = ComponentRuntime(component).cache()
        assert cache.problem is not None and str(folder) in cache.problem
        cache.component(TEXT)
    (told,) = take_problems()
    assert str(folder) in told and not take_problems()


def test_a_cache_that_can_no_more_be_written_is_told(tmp_path: Path):
    take_problems()
    cache = CompileCache(tmp_path / "kept")
    (tmp_path / "kept").rmdir()
    cache.component(TEXT)
    (told,) = take_problems()
    assert "kept" in told and cache.problem is not None
