"""The region's front door behind the gateway: authorises and validates customers' requests, asks `clm` for the rest.

Called by the gateway; never talks to a management cluster.
"""
