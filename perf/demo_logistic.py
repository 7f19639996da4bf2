"""``make demo``: fit a logistic regression to real data with compiled derivatives.

The loss is plain NumPy code.  numgrad compiles its gradient and Hessian, SciPy's trust-region
method uses both, scikit-learn's own fit of the same model checks the coefficients, and the
time per call is set beside autograd's and hand-written NumPy's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perf.clock import human, steady

Array = NDArray[np.float64]
ALPHA = 1.0  # weight of the L2 penalty; scikit-learn's C is 1 / ALPHA


def loss(params: Any, X: Any, y: Any) -> Any:
    """Negative log-likelihood with a penalty on the coefficients but not the intercept."""
    w, intercept = params[:-1], params[-1]
    z = X @ w + intercept
    return np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * ALPHA * np.sum(w * w)


# ---- the data and the fit --------------------------------------------------------------------


class Data(NamedTuple):
    X: Array
    y: Array
    names: list[str]


def load() -> Data:
    """The Wisconsin breast-cancer data: 569 tumours, 30 standardised features, 1 is benign."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    X = (data.data - data.data.mean(0)) / data.data.std(0)
    return Data(np.ascontiguousarray(X), data.target.astype(float), list(data.feature_names))


def fit(data: Data) -> tuple[Array, list[Array]]:
    """The optimum and the iterates that led to it."""
    from scipy.optimize import minimize

    import numgrad as ng

    f = ng.differentiable(loss)
    start = np.zeros(data.X.shape[1] + 1)
    path = [start]
    result = minimize(
        f,
        start,
        args=(data.X, data.y),
        method="trust-exact",
        jac=f.grad,
        hess=f.hessian,
        callback=lambda x: path.append(x.copy()),
        options={"gtol": 1e-9},
    )
    # The last step may stop at the rounding error of the loss instead of below gtol.
    assert np.linalg.norm(f.grad(result.x, data.X, data.y)) < 1e-6, result.message
    return result.x, path


def scikit_learn_fit(data: Data) -> Array:
    """The same model by scikit-learn: coefficients, then the intercept."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0 / ALPHA, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    model.fit(data.X, data.y)
    return np.append(model.coef_[0], model.intercept_)


# ---- what it is compared with ------------------------------------------------------------------


def numpy_value_and_grad(params: Array, X: Array, y: Array) -> tuple[float, Array]:
    """The same by hand."""
    from scipy.special import expit

    w = params[:-1]
    z = X @ w + params[-1]
    value = np.sum(np.logaddexp(0.0, z) - y * z) + 0.5 * ALPHA * np.dot(w, w)
    residual = expit(z) - y
    grad = np.empty_like(params)
    grad[:-1] = residual @ X + ALPHA * w
    grad[-1] = residual.sum()
    return float(value), grad


def numpy_hessian(params: Array, X: Array, y: Array) -> Array:
    """The same by hand."""
    from scipy.special import expit

    p = expit(X @ params[:-1] + params[-1])
    s = p * (1.0 - p)
    h = np.empty((params.size, params.size))
    sX = X * s[:, None]
    h[:-1, :-1] = sX.T @ X
    np.einsum("ii->i", h)[:-1] += ALPHA
    h[:-1, -1] = h[-1, :-1] = sX.sum(0)
    h[-1, -1] = s.sum()
    return h


def autograd_functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Value-and-gradient and Hessian by HIPS autograd."""
    import autograd
    import autograd.numpy as anp

    def same_loss(params: Any, X: Any, y: Any) -> Any:
        w, intercept = params[:-1], params[-1]
        z = anp.dot(X, w) + intercept
        return anp.sum(anp.logaddexp(0.0, z) - y * z) + 0.5 * ALPHA * anp.sum(w * w)

    return autograd.value_and_grad(same_loss), autograd.hessian(same_loss)


# ---- the first call, in processes of their own -------------------------------------------------


def first_call() -> dict[str, float]:
    """Timings of this process: Numba's start-up, importing numgrad, the first calls."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(569, 30)), (rng.uniform(size=569) < 0.5).astype(float)
    start = np.zeros(31)
    times = {}

    def lap(name: str) -> None:
        nonlocal begin
        times[name] = perf_counter() - begin
        begin = perf_counter()

    begin = perf_counter()
    from perf.startup import empty

    empty()
    lap("import Numba, empty @njit call")
    import numgrad as ng

    lap("import numgrad")
    f = ng.differentiable(loss)
    f.value_and_grad(start, X, y)
    lap("first value_and_grad")
    f.hessian(start, X, y)
    lap("first hessian")
    return times


def first_calls() -> list[dict[str, float]]:
    """The same in a process with an empty disk cache, and in a second one."""
    times = []
    with tempfile.TemporaryDirectory(prefix="numgrad-demo-") as folder:
        env = dict(os.environ, NUMBA_CACHE_DIR=f"{folder}/numba", NUMGRAD_CACHE_DIR=folder)
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # a checkout may keep its bytecode
        subprocess.run([sys.executable, "-c", "import perf.startup as s; s.empty()"], env=env)
        command = [sys.executable, "-m", "perf.demo_logistic", "--first-call"]
        for _ in range(2):
            done = subprocess.run(command, env=env, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            times.append(json.loads(done.stdout))
    return times


def steady_calls(point: Array, data: Data) -> dict[str, list[str]]:
    """Median time of each, and its ratio to numgrad's, after a check that all agree."""
    import numgrad as ng

    f = ng.differentiable(loss)
    functions = {
        "numgrad": (f.value_and_grad, f.hessian),
        "NumPy, by hand": (numpy_value_and_grad, numpy_hessian),
        "autograd": autograd_functions(),
    }
    grad = numpy_value_and_grad(point, data.X, data.y)[1]
    second = numpy_hessian(point, data.X, data.y)
    times: dict[str, list[float]] = {}
    for name, (value_and_grad, hessian) in functions.items():
        got = value_and_grad(point, data.X, data.y)[1]
        np.testing.assert_allclose(got, grad, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(hessian(point, data.X, data.y), second, rtol=1e-8, atol=1e-8)
        pair = (partial(g, point, data.X, data.y) for g in (value_and_grad, hessian))
        times[name] = [steady(call).median for call in pair]
    return {
        name: [f"{human(t)} ({t / b:5.1f}x)" for t, b in zip(pair, times["numgrad"], strict=True)]
        for name, pair in times.items()
    }


# ---- reports -----------------------------------------------------------------------------------


def convergence(path: list[Array], best: Array, data: Data) -> list[tuple[float, float, float]]:
    """Loss, distance of the loss to the optimum's, and gradient norm, for each iterate."""
    import numgrad as ng

    f = ng.differentiable(loss)
    least = f(best, data.X, data.y)
    rows = []
    for x in path:
        value, grad = f.value_and_grad(x, data.X, data.y)
        rows.append((float(value), float(value - least), float(np.linalg.norm(grad))))
    return rows


def draw(path: list[Array], best: Array, data: Data, target: Path) -> None:
    """Convergence, and the loss over the two largest coefficients, the others at the optimum."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    import numgrad as ng

    f = ng.differentiable(loss)
    rows = convergence(path, best, data)
    i, j = np.argsort(-np.abs(best[:-1]))[:2]

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5))
    steps = np.arange(len(rows))
    gap = np.array([row[1] for row in rows])
    shown = gap > 0.0
    left.semilogy(steps[shown], gap[shown], "o-", label="loss - least loss")
    left.semilogy(steps, [row[2] for row in rows], "s--", label="norm of the gradient")
    left.set(title="Convergence of trust-exact", xlabel="iteration")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.grid(alpha=0.3)
    left.legend()

    track = np.array([(x[i], x[j]) for x in path])
    centre, reach = best[[i, j]], 1.35 * np.max(np.abs(track - best[[i, j]]), axis=0) + 0.1
    across = np.linspace(centre[0] - reach[0], centre[0] + reach[0], 81)
    up = np.linspace(centre[1] - reach[1], centre[1] + reach[1], 81)
    surface = np.empty((up.size, across.size))
    point = best.copy()
    for row, point[j] in enumerate(up):
        for column, point[i] in enumerate(across):
            surface[row, column] = f(point, data.X, data.y)
    levels = f(best, data.X, data.y) * np.geomspace(1.001, surface.max() / surface.min(), 25)
    filled = right.contourf(across, up, surface, levels=levels, cmap="viridis", extend="min")
    right.contour(across, up, surface, levels=levels, colors="white", linewidths=0.3)
    right.plot(track[:, 0], track[:, 1], "o-", color="tab:red", markersize=4, label="iterates")
    right.plot(*centre, "*", color="white", markersize=14, label="optimum")
    right.set(title="Loss, other coefficients at the optimum")
    right.set(xlabel=f"coefficient of {data.names[i]}", ylabel=f"coefficient of {data.names[j]}")
    right.legend(loc="upper left")
    figure.colorbar(filled, ax=right, format="%.0f")
    figure.tight_layout()
    figure.savefig(target, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit a logistic regression with numgrad.")
    parser.add_argument("--picture", type=Path, default=Path("demo.png"))
    parser.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_call:
        print(json.dumps(first_call()))
        return

    data = load()
    print(f"Wisconsin breast-cancer data: {data.X.shape[0]} tumours, {data.X.shape[1]} features")
    print("L2-regularised logistic regression by scipy.optimize.minimize(method='trust-exact'),")
    print("gradient and Hessian by numgrad\n")
    best, path = fit(data)

    print("iteration         loss   above the least   norm of gradient")
    for step, (value, gap, norm) in enumerate(convergence(path, best, data)):
        print(f"{step:9d} {value:12.6f}   {max(gap, 0.0):15.3e}   {norm:16.3e}")

    expected = scikit_learn_fit(data)
    difference = np.max(np.abs(best - expected))
    accuracy = np.mean((data.X @ best[:-1] + best[-1] > 0.0) == data.y)
    print(f"\nlargest difference from scikit-learn's coefficients: {difference:.1e}")
    print(f"training accuracy: {accuracy:.1%}")
    np.testing.assert_allclose(best, expected, rtol=1e-6, atol=1e-7)

    print("\nThe first calls, each process new:     empty cache   second process")
    first, second = first_calls()
    for name in first:
        print(f"  {name:34s} {human(first[name]):>13s} {human(second[name]):>16s}")

    print("\nA steady call                      value_and_grad            hessian")
    for name, (value_and_grad, hessian) in steady_calls(best, data).items():
        print(f"  {name:26s} {value_and_grad:>22s} {hessian:>18s}")

    draw(path, best, data, options.picture)
    print(f"\nwrote {options.picture}")


if __name__ == "__main__":
    main()
