"""The edge of a region, in API Gateway's role: TLS, AWS signatures, and nothing of the region's own business.

Callers prove who they are with AWS Signature Version 4 against the keys in IAM. What passes goes to `platform_api`
with the identity that was proven and the secret that only the two of them share. In the cloud API Gateway does this;
`terraform/modules/api-gateway` has the same routes, headers and limits. `gateway.client` is the caller's side.
"""
