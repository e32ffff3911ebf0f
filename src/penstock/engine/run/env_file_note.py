"""Notes once which variables of a pipeline file came from the file ``.env`` in its folder.

An earlier pipeline may have used their defaults, or had a ``.env`` that no version read. Reading
the file is ``config.variables``. Neighbour: ``engine.run.run`` calls it before anything is read.
"""

from penstock.config.pipeline import Pipeline
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered


def new_names_note(
    pipeline: Pipeline, store: Store, lease: Lease, *, keep: bool = True
) -> str | None:
    """Returns the note, and with ``keep`` stores that it was given; None: nothing is new."""
    if not pipeline.env_file_names:
        return None
    known = store.remembered(lease.pipeline, ()).env_names
    names = [name for name in pipeline.env_file_names if name not in known]
    if not names:
        return None
    if keep:
        store.remember(lease, Remembered(env_names=frozenset(names)))
    return (
        f"{pipeline.env_file} gave {', '.join(names)}, which neither the environment nor "
        "--env-file has; this is noted once"
    )
