"""The region's front door behind the gateway: authorises and validates customers' requests, asks `clm` for the rest.

`app` has the routes (from the tables in `clusters`, `nodepools`, `management_clusters`, `work`, `provisioned`,
`service`), `identity` and `accounts` say who may, `shapes` and `schema` what may be said, `views` how it is answered.
Called by the gateway; never talks to a management cluster.
"""
