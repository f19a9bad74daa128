"""The command line, `kvroll` and `kubectl kvroll`: looks at pools, asks the operator for a decision, and reckons
before a change.

Lives here: parsing arguments, reading the API server, drawing tables. No decision about a rollout is made here: verbs
write one annotation, and never `spec`. Imports `kvroll_core` and `kvroll_operator.api`; nothing imports this package.
"""
