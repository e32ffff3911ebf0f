"""Stores the configurations that connectors change while they run (a new refresh token), and the
key that encrypts them in transit.

Workers put a changed configuration into the run's mailbox (``engine.channel.mailbox``), and the
driver saves it here at once. What a dead driver had not saved, the next one saves. Neighbour:
``engine.run``, one object a run.
"""

import secrets
from pathlib import Path

from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.plan.endpoint import DESTINATION, SOURCE
from penstock.engine.specs.lane import NewConfig
from penstock.engine.specs.observer import RunObserver
from penstock.errors import LogError
from penstock.store.contract import Lease, Store

_MAILBOX = "mailbox"  # the key's name among the roles whose configurations the store keeps


class ConnectorConfigs:
    """The configurations of the pipeline that ``lease`` holds."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self._lease = store, lease

    def save(self, role: str, new: NewConfig) -> None:
        """Stores a configuration that a connector changed (CONTROL) at once, even if the run fails
        later."""
        self._store.set_config_override(self._lease, role, new.base_hash, new.config)

    def recover(self, log: Path, observer: RunObserver) -> None:
        """Stores configurations that connectors changed in a run whose driver died before storing
        them. ``log``: the log's folder."""
        for folder in sorted((log / "mailbox").glob("*/")) if log.is_dir() else []:
            key = self.mail_key()
            mailbox = Mailbox(log, folder.name, key)
            pushes = Mailbox(log, f"{folder.name}/push", key)
            for role, box in ((SOURCE, mailbox), (DESTINATION, pushes)):
                try:
                    for _, config in box.configs():
                        self.save(role, config)
                except LogError as e:  # of another store, or of a version that did not encrypt
                    observer.log("WARN", role, f"{e.message}: {e.where}")
            mailbox.remove()

    def mail_key(self) -> bytes:
        """Returns the pipeline's key for the mailbox's configurations. It is made once and kept in
        the store, so that a driver can decrypt what was written for a dead one."""
        if (known := self._store.config_override(self._lease.pipeline, _MAILBOX)) is None:
            made = {"key": secrets.token_hex(32)}
            self._store.set_config_override(self._lease, _MAILBOX, "", made)
            known = "", made
        return bytes.fromhex(known[1]["key"])
