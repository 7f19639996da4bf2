"""Machine-level kernels: LLVM IR builder, vector math, external symbols.

This package imports only NumPy, SciPy, Numba and llvmlite, never ``numgrad`` itself.
"""
