"""What driver and workers tell each other, as data: a run's plan, a lane's job, a feeder's job, who
is told of progress, the names of a pipeline's keys in the store, and the named places at which a
test may kill a process. Structs and protocols only; nothing here opens a file or decides. Runs
in the driver and beside a connector. Every other folder of ``engine`` imports it; it imports
none of them.
"""
