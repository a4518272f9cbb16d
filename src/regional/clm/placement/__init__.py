"""Which management cluster hosts a cluster: chosen by load, reserved in the transaction that creates the cluster.

Owns the tables of capacity and placements. Called by `clm.api`.
"""
