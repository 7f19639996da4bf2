"""From a graph to stages: loop nests, buffer routines, and the memory between them."""
