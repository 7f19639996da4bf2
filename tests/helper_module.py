"""A module of the user's, with a helper function and a global, for the tests of captures."""

import numpy as np

SCALE = 2.0
WEIGHTS = np.array([1.0, 2.0, 3.0])
ORDER = 2


def penalty(w):
    return SCALE * np.sum(WEIGHTS * w**ORDER)


def plain(x):
    return x + 1.0
