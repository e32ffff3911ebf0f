"""The vocabulary: catalog, state, types, events, loads, reports. No I/O; imports nothing of
ours."""
