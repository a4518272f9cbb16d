"""Tekton's role on one machine: runs the Pipelines and Tasks in `tekton/`, as Tekton does in the cloud.

`catalog` reads and checks the files (the subset that we use; anything else is refused by name), `runner` executes a
Pipeline as a graph of tasks whose steps are forks of the warm parent, `record` keeps every transition on disk so that a
killed run goes on where it was. `tasks` has the step programs that are not Terraform. Called by `regionctl up`,
`regionctl pipeline …` and the Makefile's provision targets.
"""
