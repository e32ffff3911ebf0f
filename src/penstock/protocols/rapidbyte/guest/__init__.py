"""A running component: its host functions, sessions, threads, deadlines, sockets, frames and
events, and why a run failed. Does not know what the engine asks of a source, transform or
destination; the role modules above do. Runs beside a connector, and in the driver for check and
discover.
"""
