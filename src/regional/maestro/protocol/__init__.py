"""What server and agent say to each other: CloudEvents in binary mode on MQTT 5, as Go Maestro writes them.

Pure functions and data only; no connection, no clock of its own. It is the one thing that both sides share.
"""
