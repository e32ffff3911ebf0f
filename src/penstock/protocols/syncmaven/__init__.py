"""Implements the Syncmaven protocol. ``state_rpc``: the state that a connector keeps, served to it
by HTTP (``state_rpc_app``, ``state_store``).
"""
