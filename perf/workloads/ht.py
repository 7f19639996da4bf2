"""Hand tracking: the Jacobian of the distances from measured points to a posed hand.

A hand of 22 bones and 544 vertices is posed by 26 numbers: a rotation vector, a translation and
4 joint angles a finger.  Point i is compared with a vertex ("simple") or with a place inside a
triangle, whose two coordinates are parameters too ("complicated").
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from perf.workload import Arrays, Call, Case, Workload

FILE = Path(__file__).resolve().parent.parent / "data" / "hand.npz"

PARENTS = (-1, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11, 0, 13, 14, 15, 0, 17, 18, 19, 0)


def _angles() -> np.ndarray:
    """Where in (theta, 0) the three angles of each bone are: about x, z and y."""
    table = np.full((len(PARENTS), 3), 26)
    for finger in range(5):
        at, bone = 6 + 4 * finger, 2 + 4 * finger
        table[bone, :2] = at, at + 1
        table[bone + 1, 0] = at + 2
        table[bone + 2, 0] = at + 3
    return table


ANGLES = _angles()


def load(kind: str, count: int) -> Arrays:
    """The parameters, the model, and `count` points with what they are compared with."""
    with np.load(FILE) as data:
        given = {name: np.asarray(data[name]) for name in data.files}
    model = tuple(given[n] for n in ("base_relatives", "inverse_base_absolutes", "weights"))
    positions = np.column_stack([given["positions"], np.ones(len(given["positions"]))])
    size = 100 if count < 100 else count
    theta, seen, points = (given[f"{kind}_{size}_{n}"] for n in ("theta", "corr", "points"))
    seen, points = seen[:count].astype(np.int64), points[:count].copy()
    if kind == "simple":
        return theta, *model, positions, seen, points
    us = given[f"{kind}_{size}_us"][:count].copy()
    corners = given["triangles"].astype(np.int64)[seen]
    return theta, us, *model, positions, corners, points


def place(theta: Any, relative: Any, inverse: Any, weights: Any, positions: Any) -> Any:
    """The posed vertices, in NumPy."""
    A = np.append(theta, 0.0)[ANGLES]
    c, s = np.cos(A), np.sin(A)
    zero, one = np.zeros_like(c[:, 0]), np.ones_like(c[:, 0])

    def matrices(*rows: list[Any]) -> Any:
        return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)

    R_x = matrices([one, zero, zero], [zero, c[:, 0], -s[:, 0]], [zero, s[:, 0], c[:, 0]])
    R_z = matrices([c[:, 1], -s[:, 1], zero], [s[:, 1], c[:, 1], zero], [zero, zero, one])
    R_y = matrices([c[:, 2], zero, s[:, 2]], [zero, one, zero], [-s[:, 2], zero, c[:, 2]])
    R = R_z @ R_y @ R_x
    turned = np.concatenate([relative[:, :, :3] @ R, relative[:, :, 3:]], axis=2)
    absolute: list[Any] = []
    for bone, parent in enumerate(PARENTS):
        absolute.append(turned[bone] if parent < 0 else absolute[parent] @ turned[bone])
    M = (np.stack(absolute) @ inverse)[:, :3]
    local = np.einsum("vb,vj,bij->vi", weights, positions, M)

    r = theta[:3]
    square = np.sum(r * r)
    angle = np.sqrt(np.where(square < 1e-8, 1.0, square))
    x, y, z = r[0] / angle, r[1] / angle, r[2] / angle
    c, s = np.cos(angle), np.sin(angle)
    u = 1.0 - c
    G = np.stack(
        [
            np.stack([c + u * x * x, u * x * y - s * z, u * x * z + s * y]),
            np.stack([u * x * y + s * z, c + u * y * y, u * y * z - s * x]),
            np.stack([u * x * z - s * y, u * y * z + s * x, c + u * z * z]),
        ]
    )
    G = np.where(square < 1e-8, np.eye(3), G)
    return local @ G.T + theta[3:6]


def on_triangles(vertices: Any, us: Any, corners: Any) -> Any:
    """Places by their coordinates in triangles, for arrays of any library."""
    a, b = us[:, :1], us[:, 1:]
    first, second, third = (vertices[corners[:, k]] for k in range(3))
    return a * first + b * second + (1.0 - a - b) * third


def reference_simple(case: Case, args: Arrays) -> Arrays:
    """Complex steps: as accurate as the value, and no rule of differentiation."""
    theta, *model, seen, _ = args
    columns = []
    for k in range(theta.size):
        step = np.zeros(theta.size, complex)
        step[k] = 1e-30j
        columns.append(-place(theta + step, *model)[seen].imag.ravel() / 1e-30)
    return (np.stack(columns, axis=1),)


def reference_complicated(case: Case, args: Arrays) -> Arrays:
    theta, us, *model, corners, _ = args
    columns = []
    vertices = place(theta, *model)
    for k in range(2):
        columns.append((vertices[corners[:, 2]] - vertices[corners[:, k]]).ravel())
    for k in range(theta.size):
        step = np.zeros(theta.size, complex)
        step[k] = 1e-30j
        moved = on_triangles(place(theta + step, *model), us, corners)
        columns.append(-moved.imag.ravel() / 1e-30)
    return (np.stack(columns, axis=1),)


def _cases() -> list[Case]:
    slow = ("PyTorch", "NumPy")
    return [Case("jacobian", 100, slow=slow), Case("jacobian", 400, slow=slow, full_only=True)]


simple = Workload(
    "ht_simple",
    "Hand tracking, points on vertices (points)",
    _cases(),
    lambda count: load("simple", count),
    reference_simple,
    small=12,
)
complicated = Workload(
    "ht_complicated",
    "Hand tracking, points on triangles (points)",
    _cases(),
    lambda count: load("complicated", count),
    reference_complicated,
    small=12,
)


@simple.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    def error(theta: Any, rel: Any, inv: Any, w: Any, pos: Any, seen: Any, points: Any) -> Any:
        return points - place(theta, rel, inv, w, pos)[seen]

    by_theta = ng.jacobian(error)

    @ng.differentiable
    def jacobian(*args: Any) -> Any:
        return by_theta(*args).reshape(-1, args[0].size)

    return lambda *args: (jacobian(*args),)


@complicated.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    def error(
        theta: Any, us: Any, rel: Any, inv: Any, w: Any, pos: Any, corners: Any, points: Any
    ) -> Any:
        return points - on_triangles(place(theta, rel, inv, w, pos), us, corners)

    by_theta, along_us = ng.jacobian(error), ng.jvp(error, argnums=1)

    @ng.differentiable
    def jacobian(theta: Any, us: Any, *rest: Any) -> Any:
        # each point has coordinates of its own: a direction for each of the two is enough
        columns = [
            along_us(theta, us, *rest, np.zeros_like(us) + direction)[1].reshape(-1, 1)
            for direction in np.eye(2)
        ]
        return np.concatenate(
            [*columns, by_theta(theta, us, *rest).reshape(-1, theta.size)], axis=1
        )

    return lambda *args: (jacobian(*args),)


def _jax_place() -> Any:
    import jax.numpy as jnp

    def place(theta: Any, relative: Any, inverse: Any, weights: Any, positions: Any) -> Any:
        A = jnp.append(theta, 0.0)[ANGLES]
        c, s = jnp.cos(A), jnp.sin(A)
        zero, one = jnp.zeros(len(A)), jnp.ones(len(A))

        def matrices(*rows: list[Any]) -> Any:
            return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)

        R_x = matrices([one, zero, zero], [zero, c[:, 0], -s[:, 0]], [zero, s[:, 0], c[:, 0]])
        R_z = matrices([c[:, 1], -s[:, 1], zero], [s[:, 1], c[:, 1], zero], [zero, zero, one])
        R_y = matrices([c[:, 2], zero, s[:, 2]], [zero, one, zero], [-s[:, 2], zero, c[:, 2]])
        R = R_z @ R_y @ R_x
        turned = jnp.concatenate([relative[:, :, :3] @ R, relative[:, :, 3:]], axis=2)
        absolute: list[Any] = []
        for bone, parent in enumerate(PARENTS):
            absolute.append(turned[bone] if parent < 0 else absolute[parent] @ turned[bone])
        M = (jnp.stack(absolute) @ inverse)[:, :3]
        local = jnp.einsum("vb,vj,bij->vi", weights, positions, M)

        r = theta[:3]
        square = jnp.sum(r * r)
        angle = jnp.sqrt(jnp.where(square < 1e-8, 1.0, square))
        x, y, z = r / angle
        c, s = jnp.cos(angle), jnp.sin(angle)
        u = 1.0 - c
        G = jnp.array(
            [
                [c + u * x * x, u * x * y - s * z, u * x * z + s * y],
                [u * x * y + s * z, c + u * y * y, u * y * z - s * x],
                [u * x * z - s * y, u * y * z + s * x, c + u * z * z],
            ]
        )
        return local @ jnp.where(square < 1e-8, jnp.eye(3), G).T + theta[3:6]

    return place


@simple.rival("JAX")
def _(case: Case) -> Call:
    import jax

    place = _jax_place()

    def error(theta: Any, rel: Any, inv: Any, w: Any, pos: Any, seen: Any, points: Any) -> Any:
        return points - place(theta, rel, inv, w, pos)[seen]

    jacobian = jax.jit(lambda *args: jax.jacfwd(error)(*args).reshape(-1, 26))
    return lambda *args: (np.asarray(jacobian(*args)),)


@complicated.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    place = _jax_place()

    def error(
        theta: Any, us: Any, rel: Any, inv: Any, w: Any, pos: Any, corners: Any, points: Any
    ) -> Any:
        return points - on_triangles(place(theta, rel, inv, w, pos), us, corners)

    @jax.jit
    def jacobian(theta: Any, us: Any, *rest: Any) -> Any:
        def along(direction: Any) -> Any:
            return jax.jvp(lambda us: error(theta, us, *rest), (us,), (direction,))[1]

        columns = [along(jnp.zeros_like(us) + d).reshape(-1, 1) for d in jnp.eye(2)]
        by_theta = jax.jacfwd(error)(theta, us, *rest).reshape(-1, 26)
        return jnp.concatenate([*columns, by_theta], axis=1)

    return lambda *args: (np.asarray(jacobian(*args)),)


@simple.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads.ht_numba import simple

    return lambda *args: (simple(*args),)


@complicated.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads.ht_numba import complicated

    return lambda *args: (complicated(*args),)
