"""Runs a connector as a container of an image, through the command line of Docker or Podman.

``engine`` finds and calls that command; ``image`` knows an image and pulls it; ``command`` writes
the words that create a container; ``mounted_files`` are its arguments, and the pipes that stand for
its stdin and stdout; ``restrictions`` says which permissions and limits it enforces, ``egress``
lets it reach the hosts of a list; ``orphans`` removes what a killed Penstock left; ``runtime`` puts
them together, with the contract of ``runtimes.contract``.
"""
