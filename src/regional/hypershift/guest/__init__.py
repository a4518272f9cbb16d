"""The inside of a hosted cluster, as the operator sees and furnishes it through the guest's own API."""
