"""The server's HTTP door, `/api/maestro/v1`: the contract's routes, and create, patch and watch of bundles."""
