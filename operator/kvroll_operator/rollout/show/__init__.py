"""What people see: status, phases, conditions, rendered from one look. Nothing is decided by them, and nobody reads them back.

Imports `facts/` alone; `transition` renders once a pass, and the metrics take their words from here.
"""
