"""What the protocols that print lines of JSON have in common: reading a connector's stdout in
blocks, feeding its stdin, splitting lines, text that is no message, structs that keep unknown
fields. Knows no message of any protocol. Runs wherever a connector runs. Neighbours:
``protocols.airbyte`` and ``protocols.singer`` use it.
"""
