"""The pure domain of kvroll: words, formats, budget, compatibility, revisions.

Lives here: facts and functions that need no I/O, no clock, no event loop and no tensor. Nothing here imports another kvroll package;
every other package may import this one (`import-linter` checks both).
"""
