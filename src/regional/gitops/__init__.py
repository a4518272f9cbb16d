"""GitOps: Argo CD's role on one machine, for the artefacts a region ships.

Owns: what an ApplicationSet means (generators, Go templates), what an Application wants (Git, Helm), bringing the
cluster there and keeping it there (sync waves, hooks, prune, self-heal), its health, and the bootstrap task that hands
a fresh cluster over to it. Called as the pod `argocd` of every cluster (`regionctl serve gitops`), by the bootstrap
step of the pipelines, and by previews that need no cluster. The same files must mean the same to Argo CD itself.
"""
