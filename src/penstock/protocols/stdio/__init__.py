"""Runs connectors that exchange lines of JSON over stdin and stdout: reads stdout in blocks, feeds
stdin, splits lines, reports unparsed output, decodes structs that keep unknown fields. Not here:
the messages of any protocol. Runs wherever a connector runs. Neighbours: ``protocols.airbyte`` and
``protocols.singer`` use it.
"""
