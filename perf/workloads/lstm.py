"""An LSTM with diagonal weights over the bits of a text: a long loop of small vectors.

The state of each layer is a vector of `BITS` numbers; a time step is some twenty element-wise
operations on it.  The derivative is that of the mean log-probability of the next character.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from perf.workload import Arrays, Call, Case, Workload

BITS = 14


def make(size: tuple[int, int]) -> Arrays:
    """Weights and biases, in and out weights, start state, bits of the text."""
    layers, characters = size
    rng = np.random.default_rng(31337)
    main = rng.random((2 * layers, 4 * BITS))
    extra = rng.random((3, BITS))
    state = rng.random((2 * layers, BITS))
    # Plain text, and a rare apostrophe that makes the code points 14 bits long.
    codes = rng.choice(np.arange(32, 127), characters)
    codes[characters // 2 :: 9000] = 0x2019
    text = (codes[:, None] >> np.arange(BITS)[::-1]) & 1
    return main, extra, state, text.astype(float)


def reference(case: Case, args: Arrays) -> Arrays:
    """Back-propagation through time, derived on paper."""
    main, extra, state, text = args
    layers = len(main) // 2
    weights = main[::2].reshape(layers, 4, BITS)
    biases = main[1::2].reshape(layers, 4, BITS)
    hidden, cell = state[::2].copy(), state[1::2].copy()
    kept, outputs = [], []
    for bits in text[:-1]:
        v = bits * extra[0]
        for i in range(layers):
            h, c = hidden[i].copy(), cell[i].copy()
            z = np.stack([v, h, v, h]) * weights[i] + biases[i]
            f, g, o = expit(z[:3])
            a = np.tanh(z[3])
            cell[i] = c * f + g * a
            t = np.tanh(cell[i])
            hidden[i] = o * t
            kept.append((v, h, c, f, g, o, a, t))
            v = hidden[i].copy()
        outputs.append(v)

    d_weights, d_biases = np.zeros_like(weights), np.zeros_like(biases)
    d_extra = np.zeros_like(extra)
    d_hidden, d_cell = np.zeros_like(hidden), np.zeros_like(cell)
    for step in range(len(text) - 2, -1, -1):
        e = np.exp(outputs[step] * extra[1] + extra[2])
        seen = text[step + 1]
        d_y = -(seen - seen.sum() * e / (2.0 + e.sum())) / (len(text) - 1) / BITS
        d_extra[1] += d_y * outputs[step]
        d_extra[2] += d_y
        d_v = d_y * extra[1]
        for i in range(layers - 1, -1, -1):
            v, h, c, f, g, o, a, t = kept[step * layers + i]
            d_h = d_v + d_hidden[i]
            d_c = d_cell[i] + d_h * o * (1.0 - t * t)
            d_cell[i] = d_c * f
            d_z = np.stack(
                [
                    d_c * c * f * (1.0 - f),
                    d_c * a * g * (1.0 - g),
                    d_h * t * o * (1.0 - o),
                    d_c * g * (1.0 - a * a),
                ]
            )
            d_weights[i] += d_z * np.stack([v, h, v, h])
            d_biases[i] += d_z
            d_v = d_z[0] * weights[i, 0] + d_z[2] * weights[i, 2]
            d_hidden[i] = d_z[1] * weights[i, 1] + d_z[3] * weights[i, 3]
        d_extra[0] += d_v * text[step]
    d_main = np.stack([d_weights, d_biases], axis=1).reshape(main.shape)
    return d_main, d_extra


work = Workload(
    "lstm",
    "LSTM with diagonal weights (layers x characters)",
    [
        Case("gradient", (2, 8), slow=("PyTorch",)),
        Case("gradient", (2, 1024), slow=("PyTorch",)),
        Case("gradient", (4, 1024), slow=("PyTorch",), full_only=True),
        Case("gradient", (2, 4096), slow=("PyTorch",), full_only=True),
        Case("gradient", (4, 4096), slow=("PyTorch",), full_only=True),
    ],
    make,
    reference,
    small=(2, 4),
)


@work.rival("NumPy")
def _(case: Case) -> Call:
    return lambda *args: reference(case, args)


@work.rival("numgrad")
def _(case: Case) -> Call:
    import numgrad as ng

    layers, characters = case.size  # type: ignore[misc]

    def cell_step(weights: Any, biases: Any, v: Any, h: Any, c: Any) -> Any:
        def gate(k: int, x: Any) -> Any:
            part = slice(k * BITS, (k + 1) * BITS)
            return x * weights[part] + biases[part]

        f, g, o = expit(gate(0, v)), expit(gate(1, h)), expit(gate(2, v))
        c = c * f + g * np.tanh(gate(3, h))
        return o * np.tanh(c), c

    def loss(main: Any, extra: Any, state: Any, text: Any) -> Any:
        def step(carry: Any, bits: Any) -> Any:
            this, following = bits
            total, states = carry
            v = this * extra[0]
            new = []
            for i in range(layers):
                h, c = states[i]
                v, c = cell_step(main[2 * i], main[2 * i + 1], v, h, c)
                new.append((v, c))
            y = v * extra[1] + extra[2]
            y = y - np.log(2.0 + np.sum(np.exp(y)))
            return (total + np.sum(following * y), tuple(new)), None

        carry = 0.0, tuple((state[2 * i], state[2 * i + 1]) for i in range(layers))
        carry, _ = ng.scan(step, carry, (text[:-1], text[1:]))
        return -carry[0] / ((characters - 1) * BITS)

    return ng.grad(loss, argnums=(0, 1))


@work.rival("JAX")
def _(case: Case) -> Call:
    import jax
    import jax.numpy as jnp

    layers, characters = case.size  # type: ignore[misc]

    def loss(main: Any, extra: Any, state: Any, text: Any) -> Any:
        weights = main[::2].reshape(layers, 4, BITS)
        biases = main[1::2].reshape(layers, 4, BITS)

        def step(carry: Any, bits: Any) -> Any:
            this, following = bits
            total, hidden, cells = carry
            v = this * extra[0]
            new_hidden, new_cells = [], []
            for i in range(layers):
                h = hidden[i]
                f = jax.nn.sigmoid(v * weights[i, 0] + biases[i, 0])
                g = jax.nn.sigmoid(h * weights[i, 1] + biases[i, 1])
                o = jax.nn.sigmoid(v * weights[i, 2] + biases[i, 2])
                a = jnp.tanh(h * weights[i, 3] + biases[i, 3])
                c = cells[i] * f + g * a
                v = o * jnp.tanh(c)
                new_hidden.append(v)
                new_cells.append(c)
            y = v * extra[1] + extra[2]
            y = y - jnp.log(2.0 + jnp.sum(jnp.exp(y)))
            total = total + jnp.sum(following * y)
            return (total, jnp.stack(new_hidden), jnp.stack(new_cells)), None

        carry = 0.0, state[::2], state[1::2]
        carry, _ = jax.lax.scan(step, carry, (text[:-1], text[1:]))
        return -carry[0] / ((characters - 1) * BITS)

    grad = jax.jit(jax.grad(loss, argnums=(0, 1)))
    return lambda *args: tuple(np.asarray(g) for g in grad(*args))


@work.rival("PyTorch")
def _(case: Case) -> Call:
    import torch

    layers, characters = case.size  # type: ignore[misc]

    def call(main: np.ndarray, extra: np.ndarray, state: np.ndarray, text: np.ndarray) -> Arrays:
        p = torch.from_numpy(main).requires_grad_()
        q = torch.from_numpy(extra).requires_grad_()
        start, bits = torch.from_numpy(state), torch.from_numpy(text)
        hidden, cells = list(start[::2]), list(start[1::2])
        total = torch.zeros(())
        for t in range(characters - 1):
            v = bits[t] * q[0]
            for i in range(layers):
                wf, wi, wo, wc = p[2 * i].chunk(4)
                bf, bi, bo, bc = p[2 * i + 1].chunk(4)
                f, g = torch.sigmoid(v * wf + bf), torch.sigmoid(hidden[i] * wi + bi)
                o, a = torch.sigmoid(v * wo + bo), torch.tanh(hidden[i] * wc + bc)
                cells[i] = cells[i] * f + g * a
                hidden[i] = v = o * torch.tanh(cells[i])
            y = v * q[1] + q[2]
            total = total + (bits[t + 1] * (y - torch.log(2.0 + torch.exp(y).sum()))).sum()
        grads = torch.autograd.grad(-total / ((characters - 1) * BITS), (p, q))
        return tuple(g.numpy() for g in grads)

    return call


@work.rival("Numba")
def _(case: Case) -> Call:
    from perf.workloads.lstm_numba import gradient

    return gradient
