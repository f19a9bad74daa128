"""What the API server makes of a structural schema: pruning, defaults, validation, CEL rules. Pure: no HTTP, no store."""
