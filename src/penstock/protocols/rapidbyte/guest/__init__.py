"""Runs a component: host functions, sessions, threads, deadlines, sockets, frames, events, and the
errors of a failed run. Runs in the connector's task, and in the driver for check and discover.
Not here: the roles source, transform and destination (the role modules above).
"""
