"""The cloud that everything stands on: accounts, identities, parameters and secrets, spoken to with boto3.

`cloud.aws` makes clients and assumes roles, `cloud.accounts` mints accounts, `cloud.secrets` and `cloud.parameters`
keep values; all of it works the same against AWS and against `cloud.host`, the process that plays AWS on one machine.
Called by pipelines, the provisioner and the node's secret mounts. Whatever is done here may be done again: every
function finds what it made before.
"""
