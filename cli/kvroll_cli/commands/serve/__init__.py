"""`kvroll serve`: its arguments (`verb`), and the gateway of this process with its worker as a child process (`child`).

`child` is the only module of the command line that may import `kvroll_gateway`.
"""
