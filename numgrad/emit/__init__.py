"""From a schedule to LLVM IR text."""
