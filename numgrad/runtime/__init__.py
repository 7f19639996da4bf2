"""From IR text to machine code that Python can call."""
