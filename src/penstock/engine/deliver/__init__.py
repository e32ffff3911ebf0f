"""Delivers sealed segments: decides which segments make up a load, loads them into tables, and
feeds destination connectors.

Reads no source and begins no epoch. Runs in the driver. Neighbours: ``engine.sync`` says when, the
ledger in ``state`` says what is committed.
"""
