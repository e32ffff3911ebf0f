"""For Rapidbyte v4 connectors in Python: what is the same in each of them.

``arrow`` (columns and their types), ``arrow_write``, ``arrow_read`` (Arrow IPC streams without a
library); ``host`` (frames, checkpoints, metrics, logs, dead letters, state keys), ``faults``
(errors), ``tcp`` (connections through the host). All but the first three talk to the bindings that
componentize-py makes (``wit_world``), so they import in a guest only.
"""
