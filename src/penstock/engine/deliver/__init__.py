"""How sealed segments reach their destination: which segments make up a load, loads into tables
that Spark writes, and the feeding of destination connectors. Does not read sources and begins no
epoch. Runs in the driver. Neighbours: ``engine.sync`` says when, the ledger in ``state`` says
what is committed.
"""
