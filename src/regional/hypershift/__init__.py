"""The operator of hosted control planes: HostedCluster and NodePool of a management cluster.

Runs on management clusters; reads what `maestro.agent` applied, writes status back to the objects.
"""
