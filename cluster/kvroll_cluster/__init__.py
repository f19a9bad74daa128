"""The local Kubernetes: builds its components once into a user cache and runs two real nodes on one Linux machine.

Here live the build, the certificates, the configurations, the processes and their removal. Nothing of kvroll itself
lives here, and nothing of kvroll may import this package: the Makefile, the demo and the tests start it as a program.
"""
