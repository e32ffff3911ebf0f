"""Runs a connector as a container of an image, through the command line of Docker or Podman.

``engine`` finds and calls that command; ``image`` reads an image and pulls it; ``command`` builds
the command that creates a container; ``mounted_files`` has its arguments, and the pipes for its
stdin and stdout; ``restrictions`` decides which permissions and limits it enforces; ``egress`` lets
it reach the hosts of a list; ``orphans`` removes containers of a killed Penstock; ``runtime``
combines them under the contract of ``runtimes.contract``.
"""
