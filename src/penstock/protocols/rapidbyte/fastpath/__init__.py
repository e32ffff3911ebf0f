"""The adapter that lets a component carry bytes fast: it is nested, unchanged, next to a generated
component whose functions pack bytes as text. Handles binaries and memory, no protocol messages.
Neighbour: ``protocols.rapidbyte.guest.session`` wraps a component with it.
"""
