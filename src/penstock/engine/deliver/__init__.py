"""Delivers sealed segments: decides which segments make up a load, loads them into tables, and
feeds destination connectors.

Reads no source and begins no epoch. Runs in the driver. Neighbours: ``engine.sync`` decides when,
the ledger in ``state`` records what is committed.
"""
