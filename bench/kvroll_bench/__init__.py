"""Load and measurement as a client sees them: streaming sessions, what each received, and the report of a roll.

Lives here: what the demo, the e2e tests and `make bench` share. Talks to a gateway by its public HTTP API only; imports no other kvroll
package but `kvroll_core` (`narrow_sums`, a fault for the gate to find, also the kernels), and no kvroll package imports this one.
"""
