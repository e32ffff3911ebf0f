"""The index of connectors that ships with Penstock, and the search over it.

``connectors.json.gz`` has facts about the connectors of the package index and of the hubs: names,
versions, what each needs, its settings. ``scripts/connector_index.py`` writes it. ``index`` reads
the file, ``search`` ranks. Nothing here uses a network or runs a connector, and the file is read on
first use.
"""
