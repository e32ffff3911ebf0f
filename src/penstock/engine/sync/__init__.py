"""One sync, from the lease to the last state: begins epochs, runs lanes, watches the backlog of
sealed segments and asks for their delivery. What rows become is not decided here. Runs in the
driver. Neighbours: ``engine.wiring`` puts it together, ``engine.deliver`` carries rows,
``ports`` says what it needs of both.
"""
