"""The wire contract, generated from the `.proto` files beside this one by `make proto`; nothing here is written by hand.

Every package of kvroll may import it. Generated code is committed and diff-checked (docs/decisions/001-generated-code.md).
"""
