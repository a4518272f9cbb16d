"""The cloud on one machine: starts, watches and stops what a cloud would provide, and plays Terraform.

Owns the guardian, the supervisor, loopback addresses, unpacked tools and the provisioner. `regionctl` calls it; so do
our own tests, which run real regions with it.
"""
