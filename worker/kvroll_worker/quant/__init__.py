"""Weights made smaller while they are loaded.

Lives here: one function per weight dtype, from a bf16 matrix to what `Ops.linear` packs. No file reading, no forward pass.
Imported by `engine`.
"""
