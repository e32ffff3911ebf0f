"""Bytes to columns: framing, JSON Schema to types, JSON to Arrow, Arrow to parts. Knows no
protocol."""
