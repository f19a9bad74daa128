"""`kvroll budget`: its arguments (`verb`), the question that they make (`ask`), the table (`view`) and the `chart`.

Every byte is counted in `kvroll_core.budget`.
"""
