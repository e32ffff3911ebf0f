"""Brings a job, which holds passwords, to a Spark task without Spark seeing it.

The job is encrypted with a key of its own length that is used once: the ciphertext is a file of
mode 0600 in the run's folder of the log, the key goes with the task. Spark's closures, broadcast
blocks and event logs hold the key alone, the log's storage the file alone; either is noise without
the other. A digest under a second key refuses a file that was changed.

:func:`hide` does as much, under a key that is used often, for what a task writes for its driver: a
connector's new configuration.

Standard library only, for it runs in the task. Neighbours: ``engine.channel.spark_job`` writes and
removes the file, ``engine.channel.child_process`` reads it; ``engine.channel.mailbox`` hides
configurations.
"""

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import NamedTuple

from penstock.errors import LogError
from penstock.files import write_new

_DIGEST = "sha256"
_MAC_BYTES = 32
_NONCE_BYTES = 16


class JobKey(NamedTuple):
    """What a task must know: the file, the key of the job's length, the key of the digest."""

    path: str
    pad: bytes
    mac: bytes


def put_job(folder: Path, job: bytes) -> JobKey:
    """Encrypt into a new file of ``folder``. Raises ``OSError``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"job-{secrets.token_hex(8)}"
    key = JobKey(str(path), secrets.token_bytes(len(job)), secrets.token_bytes(_MAC_BYTES))
    hidden = _xor(job, key.pad)
    write_new(path, hmac.digest(key.mac, hidden, _DIGEST) + hidden)
    return key


def take_job(key: JobKey) -> bytes:
    """Raises ``LogError``: ``log.claimed`` where the file is gone, for the run that wrote it no
    longer waits for this task; ``log.corrupt`` where it is another."""
    try:
        with open(key.path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise LogError("the run that asked for this job is over", code="log.claimed") from None
    digest, hidden = content[:_MAC_BYTES], content[_MAC_BYTES:]
    right = hmac.digest(key.mac, hidden, _DIGEST)
    if len(hidden) != len(key.pad) or not hmac.compare_digest(digest, right):
        raise LogError(
            "the file with a task's job is not what this run wrote",
            code="log.corrupt",
            where=key.path,
            hint="who else writes to the log's folder?",
        )
    return _xor(hidden, key.pad)


def remove_job(key: JobKey) -> None:
    Path(key.path).unlink(missing_ok=True)


def hide(text: bytes, key: bytes) -> bytes:
    """A nonce, a digest, the ciphertext. Each text has a pad of its own, SHAKE256 of key and nonce;
    ``key``: 32 bytes."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    hidden = _xor(text, _pad(key, nonce, len(text)))
    return nonce + hmac.digest(key, nonce + hidden, _DIGEST) + hidden


def show(content: bytes, key: bytes) -> bytes | None:
    """None: it was not hidden under this key, or was changed since."""
    nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
    digest, hidden = rest[:_MAC_BYTES], rest[_MAC_BYTES:]
    if not hmac.compare_digest(digest, hmac.digest(key, nonce + hidden, _DIGEST)):
        return None
    return _xor(hidden, _pad(key, nonce, len(hidden)))


def _pad(key: bytes, nonce: bytes, size: int) -> bytes:
    return hashlib.shake_256(b"penstock pad" + nonce + key).digest(size)


def _xor(text: bytes, pad: bytes) -> bytes:
    mixed = int.from_bytes(text, "little") ^ int.from_bytes(pad, "little")
    return mixed.to_bytes(len(text), "little")
