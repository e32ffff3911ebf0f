"""Defines the vocabulary that all other packages share: catalog, state, types, events, loads,
reports. No I/O; imports no other package of Penstock."""
