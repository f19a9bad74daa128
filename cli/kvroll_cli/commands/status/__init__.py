"""`kvroll status`: its arguments (`verb`), the table (`view`; `figures` of a roll, which `plan` shows too), the document of `-o json`.

Nothing is read from a cluster here: that is `kvroll_cli.kube`.
"""
