"""The adapter that lets a component carry bytes fast: it is nested, unchanged, next to a generated
component whose functions pack bytes as text. Knows binaries and memory, no protocol message.
Neighbour: ``protocols.rapidbyte.guest.session`` wraps a component with it.
"""
