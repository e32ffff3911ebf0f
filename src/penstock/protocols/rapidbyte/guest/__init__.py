"""Runs a component: host functions, sessions, threads, deadlines, sockets, frames, events, and the
errors of a failed run. Runs beside a connector, and in the driver for check and discover. Not here:
what the engine asks of a source, transform or destination (the role modules above).
"""
