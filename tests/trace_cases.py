"""Expressions to trace, and how a traced one is compared with NumPy.

An expression names arrays of :func:`arrays`; it becomes a function of those that it names.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
import scipy.special as sc

from numgrad import tree
from numgrad.ir.graph import check as check_graph
from numgrad.reference import evaluate
from numgrad.trace import abstract, trace

I1, I2 = np.array([0, 2, 1]), np.array([[0, 1], [2, 0]])


def arrays(n: int) -> dict[str, Any]:
    """Named arrays with a long axis of length n."""
    r = np.random.default_rng(n)
    return {
        "v": r.normal(size=n), "w": r.normal(size=n), "p": r.uniform(0.1, 0.9, n),
        "A": r.normal(size=(n, 3)), "B": r.normal(size=(3, n)), "M": r.normal(size=(n, n)),
        "s": r.normal(size=3), "t": r.uniform(0.5, 2.0, 3), "S": r.normal(size=(3, 3)),
        "Q": r.normal(size=(2, 4)), "T": r.normal(size=(2, n, 3)), "U": r.normal(size=(2, 3, n)),
        "v32": r.normal(size=n).astype(np.float32), "A32": r.normal(size=(n, 3)).astype(np.float32),
        "iv": r.integers(-5, 6, n), "jv": r.integers(1, 4, n).astype(np.int32),
        "uv": r.integers(0, 9, n).astype(np.uint8), "bv": r.normal(size=n) > 0,
        "idx": r.integers(-3, 3, n), "row": r.integers(0, 3, (2, 2)),
        "x": 0.7, "y": -1.3, "k": 3, "f32": np.float32(0.3), "f64": np.float64(1.7),
        "E": np.zeros((0, 3)), "E1": r.normal(size=(1, 3)), "F": r.normal(size=(3, n)).T,
        "G": r.normal(size=(2 * n, 3))[::2], "D4": r.normal(size=(2, 3, n, 4)),
        "nanv": np.where(r.normal(size=n) > 0.5, np.nan, r.normal(size=n)),
        "ints": np.array([3, 1, 2]), "half": r.normal(size=2 * n),
    }  # fmt: skip


def inputs_of(t: Any, leaves: list[Any]) -> list[Any]:
    """The inputs of a graph as its specs want them."""
    values = [*leaves, *t.captures.read()]
    ready = [
        np.asarray(x).T if spec.layout == "F" else np.asarray(x)
        for x, spec in zip(values, t.in_specs, strict=False)
    ]
    return [*ready, *t.constants]


def compare(t: Any, fn: Any, args: tuple[Any, ...], rtol: float = 1e-12) -> None:
    leaves, _ = tree.split_static(tree.flatten((args, {}))[0])
    values = [*leaves, *t.captures.read()]
    signature = abstract(values)
    assert signature.key == t.signature.key
    env = signature.env(values)
    assert t.holds(env), [str(g) for g in t.guards if not g.holds(env)]
    found = evaluate(t.graph, inputs_of(t, leaves), env)
    with np.errstate(all="ignore"):
        expected = fn(*args)
    wanted, out_tree = tree.flatten(expected)
    assert out_tree == t.out_tree
    for a, b in zip(found, wanted, strict=True):
        b = np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        tol = rtol if a.dtype != np.float32 else 2e-6
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol, equal_nan=True)


def run(fn: Any, *, fixed: bool = False, rtol: float = 1e-12) -> Any:
    """Trace with one length, compare; and compare again with another length."""
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    first = arrays(12)
    args = tuple(first[name] for name in names)
    with np.errstate(all="ignore"):
        t = trace(fn, args)
    check_graph(t.graph)
    compare(t, fn, args, rtol)
    second = arrays(17)
    args = tuple(second[name] for name in names)
    leaves, _ = tree.split_static(tree.flatten((args, {}))[0])
    if fixed:
        values = [*leaves, *t.captures.read()]
        signature = abstract(values)
        assert signature.key != t.signature.key or not t.holds(signature.env(values))
    else:
        compare(t, fn, args, rtol)
    return t


def cases(text: str) -> list[Any]:
    """Parameters for pytest: one function for each expression, with the expression as its id."""
    known = arrays(12)
    space = {"np": np, "sc": sc, "math": math, "itertools": itertools, "I1": I1, "I2": I2}
    found = []
    for expression in " ".join(text.split()).rstrip(";").split("; "):
        names = dict.fromkeys(n for n in re.findall(r"\b[A-Za-z]\w*", expression) if n in known)
        function = eval(f"lambda {', '.join(names)}: {expression}", dict(space))
        found.append(pytest.param(function, id=expression))
    return found


OPERATORS = cases("""
    v + w; v + x; 1 + v; v - 2.5; 3 - v; A * v[:, None]; 2 * v; v / w; 1 / v; v // w; 7 // v;
    v // 0.3; v % w; v % 3; 5.5 % v; divmod(v, 0.4); divmod(1, v); -v; +v; abs(v); v ** 2;
    v ** 3; v ** 4; p ** 0.5; p ** (-1); p ** (-2); v ** 1; v ** 0; p ** 1.7; v ** 5; p ** (-3);
    p ** w; 2.0 ** p; 2 ** p; v ** 2.0; v ** k; p ** x; v < w; v <= 0; v > 0.5; v >= w; v == 0;
    v != 1.0; bv & (v > 0); ~bv; bv | (v > 0); bv ^ (v > 0); iv & 3; 5 | iv; iv ^ 1; ~iv;
    round(f64, 2); A @ B; B @ v; v @ A; v @ w; v32 * 2.0; v32 + 1; v32 * v; v32 * x; v32 * f64;
    v32 / f32; v * f32; iv + 1; iv * 2.0; iv / 2; iv // 2; iv % 3; iv ** 2; iv * v; jv + iv;
    jv + 1; jv * 1.5; uv + 1; uv * iv; jv * f32; bv * v; bv + bv; bv * 2; bv + 1.0; x * y;
    x + 2 * y; x ** k + k; x > 0; v * np.float64(2.0); np.float64(2.0) * v; np.float32(2.0) * v;
    v32 * np.float64(2.0); v * np.int64(3); s * np.array([1.0, 2.0, 3.0]);
    np.array([1.0, 2.0, 3.0]) * s; s + [1, 2, 3]; A - [1.0, 2.0, 3.0]; np.arange(3) - s;
    A + np.ones((1, 3)); -iv; abs(iv); +uv; E * 2 + 1; E1 * A; -x * 2 + abs(x); k * 2.5; v * k;
    k * 2 + 1; 1.0 / k; divmod(x, 0.2); x // 0.3; 3 % x; S @ s @ S; F * 2; G + 1; F + G;
    F.T @ F; A.T.T;
""")

UFUNC_FORMS = cases("""
    np.power(p, w); np.float_power(p, 2); np.power(v, 2); np.float_power(v32, 2); np.invert(bv);
    np.ldexp(v, 2); np.bitwise_and(iv, 3); np.add.reduce(A); np.add.reduce(A, axis=1);
    np.multiply.reduce(A, axis=-1, keepdims=True); np.maximum.reduce(A);
    np.minimum.reduce(A, axis=None); np.logical_and.reduce(bv); np.logical_or.reduce(bv);
    np.add.accumulate(v); np.multiply.accumulate(v); np.multiply.outer(v, s);
    np.subtract.outer(s, A); np.matmul(A, B); np.add(v, 1, dtype=np.float32); np.vecdot(A, s);
    sc.xlogy(p, p); sc.xlog1py(p, p); sc.betaln(p, p); sc.expit(2 * v); sc.exp10(v);
    np.exp(v).sum(); np.true_divide(iv, 2); np.maximum(iv, jv); np.sqrt(uv.astype(np.int32));
    np.exp(x); np.sqrt(k); np.add(v, k);
""")

METHODS = cases("""
    A.sum(); A.sum(0); A.sum(axis=1, keepdims=True); A.mean(axis=0); A.prod(1); A.max(axis=0);
    A.min(); A.var(axis=0, ddof=1); A.std(ddof=1); bv.any(); bv.all(); (A > 0).any(axis=0);
    (A > -9).all(axis=1); A.argmax(); A.argmax(axis=0); A.argmin(1); v.cumsum();
    A.cumsum(axis=0); A.cumprod(1); v.dot(w); A.reshape(-1); A.reshape((3, -1));
    A.reshape(3, -1); A.reshape(-1, order='F'); A.ravel(); A.flatten('F'); T.transpose(2, 0, 1);
    T.transpose((1, 0, 2)); T.transpose(); T.swapaxes(0, 2); E1.squeeze(); E1.squeeze(0);
    v.astype(np.float32); v.astype(int); (v * 9).astype('i4'); v.astype(bool); iv.astype(float);
    v.copy(); v.clip(-0.5, 0.5); v.clip(min=0); v.round(1); A.take([0, 2], axis=1); v.repeat(3);
    v.conj(); v.real; v.imag; A.T; T.mT; S.diagonal(); S.trace();
    A.ptp(axis=0) if hasattr(A, 'node') else np.ptp(A, axis=0);
""")

REDUCTION_FORMS = cases("""
    np.sum(v, dtype=np.float32); np.sum(v32, dtype=np.float64); np.sum(v, where=bv);
    np.sum(v, initial=3.0); np.prod(v, where=bv); np.max(v, initial=0.7);
    np.max(v, initial=-9.0, where=bv); np.mean(v, where=bv); np.var(A, axis=0, ddof=1);
    np.std(A, axis=1, ddof=1, keepdims=True); np.var(A, axis=0, correction=1);
    np.var(v, where=bv); np.any(v > 0); np.all(v); np.any(A > 1, axis=1, keepdims=True);
    np.argmax(A); np.argmax(A, axis=1); np.argmin(A, axis=0);
    np.argmax(A, axis=0, keepdims=True); np.argmax(nanv); np.argmax(bv); np.argmin(iv);
    np.cumsum(A); np.cumsum(A, axis=1); np.cumprod(A, axis=0); np.cumsum(iv); np.diff(v);
    np.diff(A, axis=0); np.diff(A, n=2); np.diff(v, 2); np.average(A); np.average(v, weights=p);
    np.average(A, axis=0, weights=p); np.average(A, axis=1);
    np.average(A, 0, p, returned=True)[1] + 0.0 * A[0]; np.nansum(nanv); np.nanmean(nanv);
    np.nanprod(nanv); np.count_nonzero(A > 0); np.count_nonzero(A > 0, axis=0);
    np.linalg.norm(v); np.linalg.norm(A); np.linalg.norm(A, axis=1);
    np.linalg.norm(A, axis=0, keepdims=True); np.linalg.norm(v, 1); np.linalg.norm(v, np.inf);
    np.linalg.norm(v, 3); np.linalg.norm(v, 2); np.linalg.norm(A, 'fro'); np.trapezoid(v);
    np.trapezoid(v, p); np.trapezoid(A, dx=0.5, axis=0); np.sum(E); np.sum(E, axis=0);
    np.prod(E); np.mean(E, axis=1); np.ptp(v); np.ptp(A, axis=0); np.cumsum(E, axis=0);
    np.var(v32); np.sum(bv); np.mean(bv); np.max(bv); np.sum(uv); np.mean(v, dtype=np.float32);
""")

SHAPES = cases("""
    np.reshape(A, -1); np.reshape(A, (3, -1)); np.reshape(A, (-1, 1));
    A.reshape(A.shape[0], 1, 3); A.reshape(A.shape[1], A.shape[0]); A.reshape(A.size);
    np.reshape(A, (3, -1), order='F'); T.reshape(2 * T.shape[1], 3); T.reshape(2, -1);
    T.reshape(-1, T.shape[1]); half.reshape(2, -1); half.reshape(-1, 2); np.ravel(A);
    np.ravel(A, 'F'); np.transpose(T); np.transpose(T, (1, 2, 0)); np.swapaxes(T, 0, 1);
    np.moveaxis(T, 0, -1); np.moveaxis(T, [0, 1], [2, 0]); np.rollaxis(T, 2);
    np.rollaxis(T, 0, 3); np.expand_dims(A, 0); np.expand_dims(A, (0, -1)); np.squeeze(E1);
    np.squeeze(v[:, None], 1); np.broadcast_to(s, A.shape); np.broadcast_to(x, (2, 3));
    np.broadcast_to(v[:, None], (v.shape[0], 4)); np.broadcast_arrays(s, A); np.atleast_2d(v);
    np.atleast_1d(x); np.atleast_3d(v); np.atleast_3d(A); np.flip(A); np.flip(A, 0);
    np.fliplr(A); np.flipud(A); np.rot90(A); np.rot90(A, 2); np.rot90(A, 3); np.rot90(A, -1);
    np.roll(v, 1); np.roll(v, -2); np.roll(A, 1, axis=1); np.roll(A, 4);
    np.roll(A, (1, -1), axis=(0, 1)); np.roll(s, 7); np.concatenate([v, w]);
    np.concatenate([A, E1, A], axis=0); np.concatenate((A, v[:, None]), axis=1);
    np.concatenate([A, S], axis=None); np.concatenate([v, v32]); np.concatenate([v, iv]);
    np.concatenate([s, [1.0, 2.0]]); np.concatenate([np.zeros(2), s]); np.stack([v, w]);
    np.stack([v, w], axis=1); np.stack((v, w), -1); np.stack([x, y, 1.0]); np.vstack([v, w]);
    np.vstack([A, s]); np.hstack([v, w]); np.hstack([A, A]); np.column_stack([v, w]);
    np.column_stack((v, A)); np.dstack([v, w]); np.append(v, 1.0); np.append(A, A, axis=1);
    np.split(half, 2); np.split(A, 3, axis=1); np.split(v, [2, 5]); np.split(v, [-4]);
    np.array_split(s, 2); np.hsplit(A, 3); np.vsplit(half[:, None], 2); np.repeat(v, 2);
    np.repeat(A, 2, axis=0); np.repeat(A, 3, 1); np.repeat(A, [1, 0, 2], axis=1); np.tile(v, 2);
    np.tile(v, (2, 1)); np.tile(A, (1, 2)); np.tile(A, 2); np.pad(v, 1);
    np.pad(A, ((1, 2), (0, 3))); np.pad(v, (2, 0), constant_values=1.5); np.zeros_like(v) + v;
    np.ones_like(v); np.full_like(v, 3); np.empty_like(v) * 0; np.full_like(v, x);
    np.zeros_like(v, dtype=np.float32); np.full_like(iv, 2); np.ones_like(v, shape=(2, 3));
    np.copy(v); np.astype(v, np.float32); np.unstack(T); D4.reshape(6, -1, 4);
    D4.reshape(2, 3, -1).sum(-1); np.moveaxis(D4, 2, 0).reshape(-1, 24); np.reshape(x, (1, 1));
    E.reshape(3, 0); np.concatenate([E, E]);
""")

PRODUCTS = cases("""
    A @ B; B @ A; v @ A; A @ s; v @ w; T @ S; T @ B; U @ T; B @ T; T @ s; v @ T; S @ np.eye(3);
    np.eye(3) @ S; s @ S @ s; A32.T @ A; iv @ A; A @ [1.0, 2.0, 3.0]; np.dot(A, B);
    np.dot(v, w); np.dot(v, 2.0); np.dot(x, v); np.dot(T, S); np.dot(T, s); np.dot(v, T);
    np.vdot(v, w); np.vdot(A, A); np.inner(v, w); np.inner(A, S); np.inner(T, s);
    np.outer(v, s); np.outer(A, s); np.tensordot(T, A); np.tensordot(T, A, axes=([1], [0]));
    np.tensordot(T, S, axes=1); np.tensordot(v, s, axes=0);
    np.tensordot(T, U, axes=((0, 1), (0, 2))); np.einsum('ij,jk->ik', A, B);
    np.einsum('ij,jk', A, B); np.einsum('ij->ji', A); np.einsum('ij->', A);
    np.einsum('ij->j', A); np.einsum('ii', S); np.einsum('ii->i', S); np.einsum('ii->i', M);
    np.einsum('ij,j->i', A, s); np.einsum('i,j->ij', v, s); np.einsum('ij,ij->i', A, A);
    np.einsum('bik,kj->bij', T, S); np.einsum('bik,bkj->bij', T, U);
    np.einsum('ni,ij,nj->n', A, S, A); np.einsum('...i->...', T);
    np.einsum('...i,ij->...j', T, S); np.einsum('bij,j->b', T, s); np.einsum('i,i', v, w);
    np.kron(S, Q); np.kron(s, t); np.kron(s, S); np.cross(s, t); np.cross(A, s); np.trace(S);
    np.trace(M); np.trace(S, offset=1); np.diagonal(A); np.diagonal(M); np.diagonal(M, 2);
    np.diagonal(S, -1); np.diagonal(T, axis1=1, axis2=2); np.diagonal(Q, 3); np.diag(v);
    np.diag(s, 1); np.diag(s, -2); np.diag(S); np.diag(M); np.tril(S); np.triu(M, 1);
    np.tril(A, -1); np.triu(T); np.diagflat(s); np.linalg.multi_dot([B, A, S]); np.tri(3) * S;
    np.linalg.matrix_transpose(A); np.convolve(v, s); np.convolve(s, v, 'same');
    np.convolve(v, s, 'valid');
""")

OTHERS = cases("""
    np.where(v > 0, v, 0.0); np.where(v > w, v, w); np.where(bv, v, -v);
    np.where([True, False, True], s, 0); np.where(np.array([True, False, True]), s, 1.0);
    np.where(True, v, 0.0); np.where(A > 0, A, s); np.where(v32 > 0, v32, 0.0);
    np.where(v32 > 0, 1, v32); np.where(iv > 0, iv, 0.5); np.where(v, 1.0, 2.0);
    np.select([v > 0, v < -1], [v, v ** 2], 0.0); np.clip(v, -1, 1); np.clip(v, None, 0.3);
    np.clip(v, 0.1, None); np.clip(A, s, None); np.clip(iv, -1, 1);
    np.clip(v, a_min=0, a_max=1); np.clip(v32, 0.0, 1.0); np.round(v, 1);
    np.round(v * 1000, -1); np.nan_to_num(nanv, nan=2.0); np.linspace(x, y, 5);
    np.linspace(0, x, 4, endpoint=False); np.linspace(0.0, v[0], v.shape[0]);
    np.linspace(s, t, 3, axis=-1); np.meshgrid(s, t); np.meshgrid(v, s, indexing='ij');
    np.meshgrid(s, t, sparse=True); np.vander(s); np.polyval(s, v);
    np.choose([0] * 3, [v[:3], v[1:4]]); np.choose(ints - 1, [s, 2 * s, 3 * s]);
    np.iscomplexobj(v) * 1.0 + v; np.ndim(v) * v; np.shape(A)[1] * A; A / np.size(A);
    A / np.size(A, 0); A / len(A); A * A.ndim; A / A.size; v / v.shape[0]; A[:A.shape[0] // 2];
    (v.shape[0] * 2 + 1) * v; v * (v.shape[0] / 2); np.sqrt(v.shape[0]) * v;
    v.sum() / (v.shape[0] - 1); 1.0 / v.shape[0] + v; v if v.shape[0] > 5 else -v;
    v32 / v32.shape[0]; np.prod(v.shape) * v; A.astype(A.dtype); v * v.itemsize;
    {'a': A, 'b': (A.sum(), 1.5)}; [A[0], A[-1]]; 3.0 + 0 * v[0]; v.shape[0] * 1.0;
    np.array([1.0, 2.0]); 7; v.shape[0]; np.float64(2.0);
""")

INDEXING = cases("""
    v[0]; v[-1]; v[3]; A[0]; A[1, 2]; A[-1, -1]; A[:, 0]; A[..., -1]; A[0, ...]; A[2:5]; A[:-1];
    A[1:]; A[::2]; A[::-1]; A[5:2:-1]; A[-3:]; A[:, ::-1]; A[1::3]; A[::-2]; A[8:1:-3]; A[100:];
    A[:100]; A[-100:2]; A[3:3]; A[5:2]; A[None]; A[:, None]; A[..., None]; A[:, None, :, None];
    A[None, 0, :, None]; T[0, 1:-1, ::2]; T[:, 0]; T[..., 0, :]; T[1, ..., 2];
    v[v.shape[0] - 1]; v[:v.shape[0] // 2]; v[v.shape[0] // 3:]; v[k]; v[k:]; v[-k];
    v[np.int64(2)]; A[()]; x; v[I1]; A[I1]; A[:, I1]; A[I2]; A[:, I2]; A[I1, I1]; A[I1, 0];
    A[0, I1]; T[:, I1]; T[0, I1]; T[0, :, I1]; T[:, I1, I1]; T[[0, 1, 1], :, I1]; T[..., I1];
    T[1, I1, None]; T[None, :, I1]; T[:, None, I1]; T[:, I1, None, I1]; D4[:, I1, :, I1];
    D4[:, I1, I1]; D4[0, I1, :, 1]; D4[:, :, I1, I2[:, :1].T[0, 0]]; D4[1, :, I1];
    D4[:, 1, :, I1]; D4[I1[:, None] % 2, I1[None]]; D4[..., 1:3, I1]; v[[0, 1, 2]];
    v[[2, 1, 0]]; v[[-1, 0]]; v[np.arange(5)]; v[np.arange(8, 0, -2)]; v[[-3, -2, -1]];
    v[[-2, 0, 1]]; v[[]]; v[ints]; A[:, row]; A[row]; A[row, row]; S[row, 1]; A[ints, ints - 1];
    T[:, ints, 0]; T[0, :, ints - 1]; v[idx]; s[idx]; A[idx, 1]; A[np.arange(3), idx[:3]];
    v[np.array([0, 1]) + 1]; T[:, [True, False] * 6 + [False] * 0] if T.shape[1] == 12 else T;
    S[np.array([True, False, True])]; S[:, [False, True, True]]; S[np.eye(3, dtype=bool)];
    S[np.tri(3, dtype=bool)]; S[np.triu_indices(3)]; S[np.diag_indices(3)];
    S[np.ix_([0, 2], [1, 2])]; S[np.array([True, False, True]), 1:]; np.take(A, [0, 2], axis=1);
    np.take(A, 3); np.take(A, I2, axis=0); np.take(A, row, axis=-1);
    np.take_along_axis(A, np.argmax(A, axis=1)[:, None], axis=1);
    np.take_along_axis(A, np.argmin(A, axis=0, keepdims=True), 0);
    np.take_along_axis(S[:2, :2], row % 2, 0); np.compress([True, False, True], s);
    np.delete(s, 1); np.delete(A, [0, 2], axis=1); v[v.argmax()]; A[A[:, 0].argmin()];
    A[:, A.sum(0).argmax()]; list(A[0]); [r @ r for r in S]; sum(s);
    [a * b for a, b in zip(s, s[1:], strict=False)]; T[1][2][0];
    (lambda a, b, c: a * b + c)(*s); F[1:, 0]; F[I1]; G[::-1]; v[0:1] * v;
""")

SUBSTITUTED = cases("""
    np.array([s[0], 2 * s[1], 3.0]); np.array([[s[0], 1.0], [0.0, s[1]]]); np.asarray(v) * 2;
    np.asarray(v, dtype=np.float32); np.array(v, ndmin=2); np.array(x); np.array([x, 1]);
    np.ascontiguousarray(v); np.ascontiguousarray(x); v * np.arange(v.shape[0]);
    v * np.arange(1, v.shape[0] + 1); np.arange(v.shape[0], 2 * v.shape[0]) - v;
    v[:v.shape[0] // 2] * np.arange(v.shape[0] // 2, dtype=float);
    np.arange(0, v.shape[0], 2) * 1.0; np.arange(v.shape[0] - 1, -1, -1) * v;
    A[np.arange(A.shape[0]), idx]; np.sin(np.arange(len(v)) / len(v)) * v; np.full(3, x);
    np.full((2, 3), x, dtype=np.float32); np.linspace(0.0, 1.0, v.shape[0]) * v;
    math.exp(x) + math.sqrt(x) * math.log(x) + math.log(x, 2) + math.pow(x, 2);
    math.atan2(x, y) + math.hypot(x, y) + math.erf(x) + math.lgamma(x); math.prod(A.shape) * A;
    math.fsum(s); sc.logsumexp(v); sc.logsumexp(A, axis=1);
    sc.logsumexp(A, axis=0, keepdims=True); sc.logsumexp(v, b=p); sc.softmax(A, axis=1);
    sc.log_softmax(A, axis=-1); sc.softmax(v); sc.polygamma(1, p); sc.polygamma(0, p);
""")
