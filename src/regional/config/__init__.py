"""Region configuration: `config.yaml` in, `deploy/` out.

Owns the model of regions (four levels: defaults, sector, region deployment, management cluster), its strict schema,
the template language, and every byte under `deploy/`. `gitops`, `pipelines`, `local` and the CLI read the result;
nobody else writes it.
"""
