"""The door for those who speak CloudEvents over gRPC, as Maestro's other clients do."""
