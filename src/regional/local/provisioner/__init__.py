"""Terraform's role on one machine: the same roots, the same inputs in, the same outputs out.

`provision(root, inputs, context)` is what a pipeline's step calls. It owns what both engines share (resolving inputs,
one apply at a time, minting keys outside any state, keeping outputs for later roots) and hands the rest to an engine:
`local_engine` makes the parts run on this machine, `terraform_engine` runs the real binary in `terraform/config/`.
Called by `regionctl provision`, which Tekton's tasks run.
"""
