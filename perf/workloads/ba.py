"""Bundle adjustment: the sparse Jacobian of reprojection errors, a small block an observation.

An observation sees a point (3 numbers) through a camera (11: rotation vector, centre, focal
length, principal point, two distortions) with a weight.  The Jacobian has 2 x 15 values for each
observation, and one for each weight's own error 1 - w^2.  They are given in the order of the
rows; their columns depend on the observations alone and are not computed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload

# cameras and points by the number of observations
SCENES = {31_843: (49, 7776), 36_455: (21, 11_315), 182_072: (161, 48_126), 60: (7, 20)}

# one camera, point, weight and feature of the first scene
CAMERA = (
    -0.758453, -1.109613, -0.845551, 34.556073, 39.676747, 53.881673,
    419.194514, 5.864426, -8.518870, 0.087812, 0.002739,
)  # fmt: skip
POINT = (7.203245, 0.001144, 3.023326)
WEIGHT = 0.417022
FEATURE = (271.760969, 834.209256)


def make(observations: int) -> Arrays:
    """Cameras, points, weights, the camera and the point of each observation, features."""
    n, m = SCENES[observations]
    rng = np.random.default_rng(31337)

    def spread(value: Any, count: int) -> np.ndarray:
        """The scene has `value` everywhere; here each differs a little, so that mixing shows."""
        one = np.atleast_1d(np.asarray(value))
        return one * (1.0 + 1e-3 * rng.normal(size=(count, one.size)))

    seen = np.arange(observations)
    return (
        spread(CAMERA, n),
        spread(POINT, m),
        spread(WEIGHT, observations)[:, 0],
        seen % n,
        seen % m,
        spread(FEATURE, observations),
    )


def reference(case: Case, args: Arrays) -> Arrays:
    """The blocks by the chain rule on paper, all observations at once."""
    cameras, points, w, seen_by, seen, features = args
    cam, X = cameras[seen_by], points[seen]
    r, Xo = cam[:, :3], X - cam[:, 3:6]
    f, k1, k2 = cam[:, 6, None], cam[:, 9, None], cam[:, 10, None]
    angle = np.linalg.norm(r, axis=1)[:, None]
    axis = r / angle
    c, s = np.cos(angle), np.sin(angle)
    along = np.sum(axis * Xo, axis=1)[:, None]
    turned = np.cross(axis, Xo)
    Xc = c * Xo + s * turned + along * (1.0 - c) * axis

    # Xc by the rotation vector and by Xo: columns k
    by_r, by_Xo = np.empty((len(w), 3, 3)), np.empty((len(w), 3, 3))
    for k in range(3):
        unit = np.eye(3)[k]
        a_k = axis[:, k, None]
        d_axis = (unit - axis * a_k) / angle
        by_r[:, :, k] = (
            a_k * (c * turned - s * Xo + along * s * axis)
            + s * np.cross(d_axis, Xo)
            + (1.0 - c) * (np.sum(d_axis * Xo, axis=1)[:, None] * axis + along * d_axis)
        )
        by_Xo[:, :, k] = c * unit + s * np.cross(axis, unit) + (1.0 - c) * a_k * axis

    z = Xc[:, 2, None]
    p = Xc[:, :2] / z
    rho = np.sum(p * p, axis=1)[:, None]
    stretch = 1.0 + k1 * rho + k2 * rho**2
    by_p = stretch[:, :, None] * np.eye(2) + (2.0 * (k1 + 2.0 * k2 * rho))[:, :, None] * (
        p[:, :, None] * p[:, None, :]
    )
    by_Xc = np.zeros((len(w), 2, 3))
    by_Xc[:, 0, 0] = by_Xc[:, 1, 1] = 1.0 / z[:, 0]
    by_Xc[:, :, 2] = -p / z
    E = (w[:, None] * f)[:, :, None] * (by_p @ by_Xc)

    block = np.zeros((len(w), 2, 15))
    block[:, :, :3] = E @ by_r
    block[:, :, 3:6] = -(E @ by_Xo)
    block[:, :, 6] = w[:, None] * p * stretch
    block[:, 0, 7] = block[:, 1, 8] = w
    block[:, :, 9] = w[:, None] * f * p * rho
    block[:, :, 10] = w[:, None] * f * p * rho**2
    block[:, :, 11:14] = E @ by_Xo
    block[:, :, 14] = p * stretch * f + cam[:, 7:9] - features
    return (np.concatenate([block.reshape(-1), -2.0 * w]),)


work = Workload(
    "ba",
    "Bundle adjustment, sparse Jacobian (observations)",
    [
        Case("jacobian", 31_843),
        Case("jacobian", 36_455, full_only=True),
        Case("jacobian", 182_072, full_only=True),
    ],
    make,
    reference,
    small=60,
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    def error(r: Any, C: Any, optics: Any, X: Any, w: Any, feature: Any) -> Any:
        f, centre, k1, k2 = optics[0], optics[1:3], optics[3], optics[4]
        Xo = X - C
        square = np.sum(r * r)
        angle = np.sqrt(np.where(square > 0.0, square, 1.0))
        axis = r / angle
        c, s = np.cos(angle), np.sin(angle)
        turned = c * Xo + s * np.cross(axis, Xo) + (1.0 - c) * np.sum(axis * Xo) * axis
        Xc = np.where(square > 0.0, turned, Xo + np.cross(r, Xo))
        p = Xc[:2] / Xc[2]
        rho = np.sum(p * p)
        p = p * (1.0 + k1 * rho + k2 * rho**2)
        return w * (f * p + centre - feature)

    blocks = ng.vmap(ng.jacobian(error, argnums=(0, 1, 2, 3, 4)))

    @ng.differentiable
    def jacobian(cameras: Any, points: Any, w: Any, seen_by: Any, seen: Any, features: Any) -> Any:
        cam, X = cameras[seen_by], points[seen]
        *by, by_w = blocks(cam[:, :3], cam[:, 3:6], cam[:, 6:11], X, w, features)
        rows = np.concatenate([*by, by_w[:, :, None]], axis=2)
        return np.concatenate([rows.reshape(-1), -2.0 * w])

    return lambda *args: (jacobian(*args),)


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    def error(r: Any, C: Any, optics: Any, X: Any, w: Any, feature: Any) -> Any:
        f, centre, k1, k2 = optics[0], optics[1:3], optics[3], optics[4]
        Xo = X - C
        square = jnp.sum(r * r)
        angle = jnp.sqrt(jnp.where(square > 0.0, square, 1.0))
        axis = r / angle
        c, s = jnp.cos(angle), jnp.sin(angle)
        turned = c * Xo + s * jnp.cross(axis, Xo) + (1.0 - c) * jnp.sum(axis * Xo) * axis
        Xc = jnp.where(square > 0.0, turned, Xo + jnp.cross(r, Xo))
        p = Xc[:2] / Xc[2]
        rho = jnp.sum(p * p)
        p = p * (1.0 + k1 * rho + k2 * rho**2)
        return w * (f * p + centre - feature)

    blocks = jax.vmap(jax.jacrev(error, argnums=(0, 1, 2, 3, 4)))

    @jax.jit
    def jacobian(cameras: Any, points: Any, w: Any, seen_by: Any, seen: Any, features: Any) -> Any:
        cam, X = cameras[seen_by], points[seen]
        *by, by_w = blocks(cam[:, :3], cam[:, 3:6], cam[:, 6:11], X, w, features)
        rows = jnp.concatenate([*by, by_w[:, :, None]], axis=2)
        return jnp.concatenate([rows.reshape(-1), -2.0 * w])

    return lambda *args: (np.asarray(jacobian(*args)),)


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    def error(r: Any, C: Any, optics: Any, X: Any, w: Any, feature: Any) -> Any:
        f, centre, k1, k2 = optics[0], optics[1:3], optics[3], optics[4]
        Xo = X - C
        square = (r * r).sum()
        angle = torch.sqrt(torch.where(square > 0.0, square, 1.0))
        axis = r / angle
        c, s = torch.cos(angle), torch.sin(angle)
        product = torch.linalg.cross(axis, Xo)
        turned = c * Xo + s * product + (1.0 - c) * (axis * Xo).sum() * axis
        Xc = torch.where(square > 0.0, turned, Xo + torch.linalg.cross(r, Xo))
        p = Xc[:2] / Xc[2]
        rho = (p * p).sum()
        p = p * (1.0 + k1 * rho + k2 * rho**2)
        return w * (f * p + centre - feature)

    blocks = torch.func.vmap(torch.func.jacrev(error, argnums=(0, 1, 2, 3, 4)))

    def call(*args: np.ndarray) -> Arrays:
        cameras, points, w, seen_by, seen, features = map(torch.from_numpy, args)
        cam, X = cameras[seen_by], points[seen]
        *by, by_w = blocks(cam[:, :3], cam[:, 3:6], cam[:, 6:11], X, w, features)
        rows = torch.cat([*by, by_w[:, :, None]], dim=2)
        return (torch.cat([rows.reshape(-1), -2.0 * w]).numpy(),)

    return call


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads.ba_numba import jacobian

    return lambda *args: (jacobian(*args),)
