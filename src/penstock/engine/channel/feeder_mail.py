"""Exchanges orders and acks between the driver and a running push task: numbered files in the
mailbox.

The folder is separate from the lanes' files, so that a destination's new configuration is never
taken for the source's. Each file is written whole and renamed, mode 0600, so that no reader sees
half a file. Neighbours: ``engine.deliver.connector_delivery`` (the driver),
``engine.worker.feeder`` (the task), ``engine.channel.mailbox`` (lease and cancel, which are the
run's)::

    mailbox/RUN/push/claim-NUMBER             exclusive create: a task that Spark retries fails
    mailbox/RUN/push/order-NUMBER-N.json      N from 1, without gaps; fed in this order
    mailbox/RUN/push/ack-NUMBER-N.json        N from 1, without gaps
    mailbox/RUN/push/progress-NUMBER.json, config-NUMBER-N, log-NUMBER.jsonl
"""

from pathlib import Path

import msgspec

from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.specs.feeder import AckedSegments, FeedOrder
from penstock.engine.specs.lane import NewConfig
from penstock.errors import LogError
from penstock.files import make_folder, replace, write_new
from penstock.tasks.storage import storage


class PushMail(Mailbox):
    """Reads and writes the files of one push task. ``number``: of its ``PushJob``, in place of a
    lane's epoch. ``create`` and ``remove`` are for the driver."""

    def __init__(self, log_root: Path, run: str, number: int, key: bytes = b"") -> None:
        super().__init__(log_root, f"{run}/push", key)
        self.number = number
        self._ordered = self._taken = 0
        self._acked = self._acks_read = 0
        self._configs = 0

    def create(self) -> None:
        """Creates the folder; the lease file is the run's."""
        make_folder(self.folder, 0o700)  # or a power cut takes it with its rejects

    # -- the driver's side

    def order(self, order: FeedOrder) -> None:
        """Writes the next order. Raises ``LogError``."""
        self._ordered += 1
        self._write(f"order-{self.number}-{self._ordered}.json", msgspec.json.encode(order))

    def acks(self) -> list[AckedSegments]:
        """Returns the acks written since the last call, in order."""
        found: list[AckedSegments] = []
        while (raw := self._get(f"ack-{self.number}-{self._acks_read + 1}.json")) is not None:
            self._acks_read += 1
            found.append(msgspec.json.decode(raw, type=AckedSegments))
        return found

    # -- the task's side

    def claim(self, owner: str) -> None:
        """Makes this process the only one that carries out the job. Raises ``LogError``
        (``log.claimed``) where another process has claimed it: the destination would be fed
        everything twice."""
        path = self.folder / f"claim-{self.number}"
        with storage(path, "create"):
            try:
                write_new(path, owner.encode())
            except FileExistsError as e:
                raise LogError(
                    f"push {self.number} has run already",
                    code="log.claimed",
                    hint="a retried task never feeds a destination twice; the sync begins another",
                ) from e

    def next_order(self) -> FeedOrder | None:
        """Returns the next order; None: the driver has not written it yet. Raises ``LogError``
        (``log.corrupt``)."""
        raw = self._get(f"order-{self.number}-{self._taken + 1}.json")
        if raw is None:
            return None
        self._taken += 1
        try:
            return msgspec.json.decode(raw, type=FeedOrder)
        except msgspec.DecodeError as e:
            raise LogError(
                f"order {self._taken} of push {self.number} cannot be read: {e}",
                code="log.corrupt",
                hint="every worker must run the same version as the driver",
            ) from e

    def ack(self, acked: AckedSegments) -> None:
        """Writes the next ack. Raises ``LogError``."""
        self._acked += 1
        self._write(f"ack-{self.number}-{self._acked}.json", msgspec.json.encode(acked))

    def new_config(self, config: NewConfig) -> None:
        """Writes a configuration that the destination changed. Raises ``LogError``."""
        self._configs += 1
        with storage(self.folder, "write to"):
            self.put_config(self.number, self._configs, config)

    def _write(self, name: str, body: bytes) -> None:
        with storage(self.folder / name, "write"):
            replace(self.folder / name, body)
