"""How a connector runs as a container of an image, through the command line of Docker or Podman.

``engine`` finds and calls that command; ``image`` knows an image and pulls it; ``command`` writes
the words that create a container; ``mounted_files`` are its arguments, and the pipes that stand for
its stdin and stdout; ``holding`` says what it can be held to, ``egress`` lets it reach the hosts of
a list; ``orphans`` removes what a killed Penstock left; ``runtime`` puts them together, with the
contract of ``runtimes.contract``.
"""
