"""Cluster lifecycle management: the region's only source of truth about hosted clusters.

`api` holds it, `sentinel` sees what needs work, `adapter` turns that into manifests. Called by `platform_api`; the
adapter speaks to `maestro`.
"""
