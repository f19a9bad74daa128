"""What a create, update, patch, apply or delete means: identity, preconditions, finalizers, garbage. Knows no HTTP.

Imports `store`, `schema`, `patches` and `kinds`; imported by `http` and `server`.
"""
