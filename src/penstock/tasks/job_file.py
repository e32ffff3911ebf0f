"""Encrypts a job, which holds passwords, into a file for a Spark task, so that Spark never has it.

The job is encrypted with a key of its own length that is used once. The ciphertext is a file of
mode 0600 in the run's folder of the log; the key goes with the task. Spark's closures, broadcast
blocks and event logs have the key alone, the log's storage the file alone; neither can be read
without the other. A digest under a second key detects a changed file.

:func:`hide` does the same under a key that is used often, for a connector's new configuration,
which a task writes for the driver.

Standard library only, since it runs in the task. Neighbours: ``tasks.spark_job`` writes and removes
the file, ``tasks.child_process`` gets its content; ``engine.channel.mailbox`` hides
configurations."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from penstock.errors import LogError
from penstock.files import write_new

_DIGEST = "sha256"
_MAC_BYTES = 32
_NONCE_BYTES = 16


class JobKey(NamedTuple):
    """What a task needs to read its job: the file's path, the pad (as long as the job), the
    digest's key."""

    path: str
    pad: bytes
    mac: bytes


def put_job(folder: Path, job: bytes) -> JobKey:
    """Encrypts a job into a new file of ``folder``. Raises ``OSError``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"job-{secrets.token_hex(8)}"
    key = JobKey(str(path), secrets.token_bytes(len(job)), secrets.token_bytes(_MAC_BYTES))
    hidden = _xor(job, key.pad)
    write_new(path, hmac.digest(key.mac, hidden, _DIGEST) + hidden)
    return key


def take_job(key: JobKey) -> bytes:
    """Reads and decrypts a job. Raises ``LogError``: ``log.claimed`` if the file is gone, since the
    run that wrote it no longer waits for this task; ``log.not_shared`` if this machine lacks even
    the run's folder, or cannot read it; ``log.corrupt`` if its digest differs."""
    try:
        with open(key.path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(key.path)):
            raise LogError("the run that started this job is over", code="log.claimed") from None
        raise not_shared(key.path, "it does not see the log's folder") from None
    except OSError as failure:
        raise not_shared(
            key.path, f"it cannot read the log's folder ({failure.strerror})"
        ) from None
    digest, hidden = content[:_MAC_BYTES], content[_MAC_BYTES:]
    right = hmac.digest(key.mac, hidden, _DIGEST)
    if len(hidden) != len(key.pad) or not hmac.compare_digest(digest, right):
        raise LogError(
            "the file with a task's job is not what this run wrote",
            code="log.corrupt",
            where=key.path,
            hint="find out what else writes to the log's folder: only this pipeline may",
        )
    return _xor(hidden, key.pad)


def not_shared(path: str, lacks: str) -> LogError:
    """Makes the error for a worker that cannot read a file of the log. ``lacks``: a clause with
    what it lacks."""
    folder = os.path.dirname(path)
    return LogError(
        f"{lacks}: {folder}",
        code="log.not_shared",
        where=folder,
        hint="`log.path` must be on storage that the driver and every worker share, under the same "
        "path (docs/cluster.md): mount it on that worker, or take the worker out of the cluster",
    )


def remove_job(key: JobKey) -> None:
    """Deletes a job's file, if it exists."""
    Path(key.path).unlink(missing_ok=True)


def hide(text: bytes, key: bytes) -> bytes:
    """Encrypts a text: returns nonce, digest, ciphertext. Each text has its own pad, SHAKE256 of
    key and nonce; ``key``: 32 bytes."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    hidden = _xor(text, _pad(key, nonce, len(text)))
    return nonce + hmac.digest(key, nonce + hidden, _DIGEST) + hidden


def show(content: bytes, key: bytes) -> bytes | None:
    """Decrypts what :func:`hide` returned; None: it was written under another key, or changed
    since."""
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
