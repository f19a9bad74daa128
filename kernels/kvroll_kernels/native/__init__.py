"""The C++ kernels behind the contract: binds arrays to handles and hands calls on.

No arithmetic lives here (that is `kernels/src`); only `dispatch` imports this package, and only when the module is built.
"""
