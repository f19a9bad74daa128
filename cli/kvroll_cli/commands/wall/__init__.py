"""`kvroll wall`: its arguments and its table.

Judging is `kvroll_core.wall`, reading engines `kvroll_cli.engines`. `advise` judges an engine by this verb.
"""
