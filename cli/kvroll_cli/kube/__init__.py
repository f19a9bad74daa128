"""What the command line reads from the API server: pools, drains, workers' reports, and what a status says of them.

Lives here: the connection and the arguments that name it, typed snapshots, progress of a roll. Verbs, the dashboard and
`engines` import it; it draws nothing, and its only write is the annotation of a request.
"""
