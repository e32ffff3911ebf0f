"""Turns bytes into columns and back: frames lines, reads JSON Schema as types, decodes JSON into
Arrow, writes parts, encodes rows as JSON lines. Not here: the messages of a protocol."""
