"""What a component and a pipeline declare before anything runs: manifest, permissions, hosts,
catalog, hints, shards, and the context that every stage of a stream is told. Pure; runs in the
driver and beside a connector. Neighbours: ``protocols.rapidbyte.guest`` runs components within
what is declared here.
"""
