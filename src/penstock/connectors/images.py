"""Makes the launch of a container image from a reference to it. A missing image is pulled first.

Neighbours: ``resolve`` calls; ``runtimes.container`` knows engines and images.
"""

from collections.abc import Sequence

from penstock.config.sections import ContainerSettings
from penstock.connectors.launch import Launch
from penstock.connectors.reference import ConnectorRef
from penstock.connectors.uv import Progress
from penstock.errors import Role, in_role
from penstock.runtimes.container.engine import find_engine
from penstock.runtimes.container.image import known_image


def image_launch(
    ref: ConnectorRef,
    role: Role,
    env_keys: Sequence[str],
    settings: ContainerSettings,
    progress: Progress,
    *,
    upgrade: bool,
) -> Launch:
    """``upgrade``: pulls from the registry even if the image is here. Raises the role's error
    (``connector.no_engine``, ``connector.image_missing``)."""
    with in_role(role):
        pull = "always" if upgrade else settings.pull
        image = known_image(find_engine(), ref.target or "", pull, progress)
    return Launch(
        protocol=ref.protocol or "", image=image, container=settings, env_keys=tuple(env_keys)
    )
