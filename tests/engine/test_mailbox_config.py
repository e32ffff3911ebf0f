"""A connector's new configuration in the mailbox: whole, private, and there after a power cut."""

import os
import stat
from pathlib import Path

import pytest

from penstock.engine.mailbox import Mailbox, NewConfig, Progress


def test_l10_new_credentials_are_synced_before_and_after_their_name_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh token that was used once is the only one: losing the new one loses the access."""
    box = Mailbox(tmp_path, "r1")
    box.create()
    synced: list[tuple[bool, bool]] = []
    real = os.fsync

    def watched(fd: int) -> None:
        named = any(box.folder.glob("config-*.json"))
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), named))
        real(fd)

    monkeypatch.setattr(os, "fsync", watched)
    box.put_progress(1, Progress())
    assert synced == []
    box.put_config(1, 1, NewConfig("h", {"token": "new"}))
    assert synced == [(False, False), (True, True)]
    (found,) = box.configs(1)
    assert found[1].config == {"token": "new"}
    assert stat.S_IMODE(found[0].stat().st_mode) == 0o600
