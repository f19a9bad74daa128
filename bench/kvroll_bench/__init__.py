"""Load and measurement for `make bench` and the e2e tests, on top of the client, wave and report of `kvroll_cli.demo`.

Lives here: trial pools, the wall's load and report. Imports `kvroll_cli.demo` and `kvroll_core` (`narrow_sums`, a fault
for the gate to find, also the kernels), and no kvroll package imports this one.
"""
