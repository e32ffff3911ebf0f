"""How the driver and the processes beside connectors reach each other: the Spark job that starts a
process, the job that it reads, the mailbox of files, the driver's heartbeat, the logs. Carries
what it is given; what a lane or a feeder does is ``engine.worker``'s business. Runs on both
sides, so it imports no pyspark: a Spark session is an argument.
"""
