"""For each rewrite rule: expressions, and what simplification makes of them."""

from __future__ import annotations

import numpy as np

from numgrad.ir.dims import Dim
from numgrad.ir.graph import Aval, Node, const, input_node
from numgrad.ops import elementwise as e, linalg, reduce as rd, shape as sh

F64 = np.dtype(np.float64)
BOOL = np.dtype(bool)


def arg(index: int, *shape: int | Dim, dtype: np.dtype = F64) -> Node:
    return input_node(index, Aval(shape, dtype))


def num(value: float, like: Node) -> Node:
    return const(value, like.aval)


N = Dim.symbol(0)
X, Y = arg(0, 3, 4), arg(1, 3, 4)
S = arg(2, 3, 1)
C = arg(3, 3, 4, dtype=BOOL)


def ones_at(value: float) -> Node:
    return num(value, X)


def window(x: Node, start: tuple, shape: tuple, step: tuple | None = None) -> Node:
    return sh._slice(x, start=start, step=step or (1,) * x.ndim, shape=shape)


def place(x: Node, start: tuple, shape: tuple) -> Node:
    return sh._unslice(x, start=start, step=(1,) * x.ndim, shape=shape)


def squared(x: Node) -> Node:
    return e.mul(x, x)


def stretch(x: Node) -> Node:
    return sh._expand(x, shape=(3, 4))


def turn(x: Node) -> Node:
    return sh._transpose(x, perm=(1, 0))


def total(x: Node, *axes: int) -> Node:
    return sh._reduce_sum(x, axes=axes)


V = arg(0, 4, 4)
UNIT = sh.basis((4, 4), 0, F64)
PART = sh.basis((6, 4), 1, F64)
LOG_SUM_EXP = e.log(total(e.exp(X), 1))
HIGH = rd.reduce_max(X, (1,))
SHIFTED = e.sub(X, stretch(HIGH))
SUM_SHIFTED = total(e.exp(SHIFTED), 1)
FREED = "sub(x, expand(stop_gradient(reduce_max(x))))"
FINITE_HIGH = "stop_gradient(select(isfinite(reduce_max(x)), reduce_max(x), 0))"
LOG_MEAN_EXP = e.log(e.mul(total(e.exp(X), 1), num(0.25, S)))

# rule -> (expression, what it becomes); inputs x, y are (3, 4), z is (3, 1), w is boolean
EXAMPLES: dict[str, list[tuple[Node, str]]] = {
    "fold_constants": [
        (e.mul(X, e.sqrt(ones_at(9.0))), "mul(x, 3)"),
        (e.select(e.lt(ones_at(1), ones_at(2)), X, Y), "x"),
    ],
    "broadcast_last": [
        (e.mul(stretch(S), stretch(e.neg(S))), "expand(neg(mul(z, z)))"),
        (e.add(stretch(S), ones_at(2)), "expand(add(z, 2))"),
        (e.sin(stretch(S)), "expand(sin(z))"),
    ],
    "constant_second": [(e.maximum(ones_at(2), X), "maximum(x, 2)")],
    "add_zero": [(e.add(X, ones_at(0)), "x")],
    "subtract_zero": [(e.sub(X, ones_at(0)), "x"), (e.sub(ones_at(0), X), "neg(x)")],
    "subtract_constant": [(e.sub(X, ones_at(3)), "add(x, -3)")],
    "add_negative": [
        (e.add(X, e.neg(Y)), "sub(x, y)"),
        (e.add(e.neg(X), Y), "sub(y, x)"),
        (e.add(e.neg(X), e.neg(Y)), "neg(add(x, y))"),
    ],
    "subtract_negative": [
        (e.sub(X, e.neg(Y)), "add(x, y)"),
        (e.sub(e.neg(X), Y), "neg(add(x, y))"),
    ],
    "negate_sum": [
        (e.neg(e.neg(X)), "x"),
        (e.neg(e.sub(X, Y)), "sub(y, x)"),
        (e.neg(e.add(X, ones_at(2))), "sub(-2, x)"),
    ],
    "negate_product": [
        (e.neg(e.mul(X, ones_at(3))), "mul(x, -3)"),
        (e.neg(e.div(ones_at(3), X)), "div(-3, x)"),
    ],
    "collect_terms": [
        (e.add(X, X), "mul(x, 2)"),
        (e.add(e.mul(X, ones_at(3)), X), "mul(x, 4)"),
        (e.sub(e.mul(X, ones_at(3)), X), "mul(x, 2)"),
        (e.sub(X, X), "sub(x, x)"),
    ],
    "collect_again": [(e.add(e.add(X, Y), Y), "add(x, mul(y, 2))")],
    "common_factor": [
        (e.add(e.mul(X, ones_at(3)), e.mul(Y, ones_at(3))), "mul(add(x, y), 3)"),
        (e.add(e.mul(X, ones_at(3)), e.mul(Y, ones_at(-3))), "mul(sub(x, y), 3)"),
    ],
    "multiply_zero_one": [
        (e.mul(X, ones_at(1)), "x"),
        (e.mul(ones_at(0), X), "0"),
        (e.mul(X, ones_at(-1)), "neg(x)"),
        (e.mul_no_nan(X, ones_at(1)), "x"),
    ],
    "merge_factors": [
        (e.mul(ones_at(2), e.mul(ones_at(3), X)), "mul(x, 6)"),
        (e.mul(ones_at(1e200), e.mul(ones_at(1e200), X)), "mul(mul(x, 1e+200), 1e+200)"),
    ],
    "factor_out": [
        (e.mul(e.mul(X, ones_at(2)), e.mul(Y, ones_at(3))), "mul(mul(x, y), 6)"),
    ],
    "sign_of_product": [
        (e.mul(e.neg(X), e.neg(Y)), "mul(x, y)"),
        (e.mul(e.neg(X), Y), "neg(mul(x, y))"),
        (e.mul(e.neg(X), ones_at(3)), "mul(x, -3)"),
    ],
    "plain_product": [
        (e.mul_no_nan(X, ones_at(3)), "mul(x, 3)"),
        (e.mul_no_nan(X, ones_at(np.inf)), "mul_no_nan(x, inf)"),
        (e.mul_no_nan(X, Y), "mul_no_nan(x, y)"),
    ],
    "select_product": [
        (e.mul_no_nan(X, e.select(C, ones_at(1), ones_at(0))), "select(w, x, 0)"),
    ],
    "divide_constant": [
        (e.div(X, ones_at(1)), "x"),
        (e.div(X, ones_at(4)), "mul(x, 0.25)"),
        (e.div(X, ones_at(3)), "div(x, 3)"),
        (e.div(e.mul(X, ones_at(6)), ones_at(3)), "mul(x, 2)"),
    ],
    "sign_of_quotient": [
        (e.div(e.neg(X), Y), "neg(div(x, y))"),
        (e.div(X, e.neg(Y)), "neg(div(x, y))"),
    ],
    "factor_of_quotient": [
        (e.div(e.mul(X, ones_at(3)), Y), "mul(div(x, y), 3)"),
        (e.div(ones_at(3), e.mul(Y, ones_at(6))), "div(0.5, y)"),
        (e.div(X, e.mul(Y, ones_at(4))), "mul(div(x, y), 0.25)"),
    ],
    "multiply_quotient": [(e.mul(e.div(ones_at(3), X), ones_at(2)), "div(6, x)")],
    "constant_power": [
        (e.power(X, ones_at(0)), "1"),
        (e.power(X, ones_at(1)), "x"),
        (e.power(X, ones_at(2)), "mul(x, x)"),
        (e.power(X, ones_at(3)), "mul(x, mul(x, x))"),
        (e.power(X, ones_at(4)), "mul(mul(x, x), mul(x, x))"),
        (e.power(X, ones_at(-1)), "div(1, x)"),
        (e.power(X, ones_at(-2)), "div(1, mul(x, x))"),
        (e.power(X, ones_at(0.5)), "sqrt(x)"),
        (e.power(X, ones_at(-0.5)), "div(1, sqrt(x))"),
        (e.power(X, ones_at(2.5)), "power(x, 2.5)"),
    ],
    "root_of_square": [
        (e.sqrt(e.mul(X, X)), "abs(x)"),
        (e.sqrt(e.power(X, ones_at(2))), "abs(x)"),
    ],
    "absolute": [(e.abs(e.neg(X)), "abs(x)"), (e.abs(e.abs(X)), "abs(x)")],
    "square_of_root": [
        (squared(e.abs(X)), "mul(x, x)"),
        (squared(e.sqrt(total(squared(X), 1))), "reduce_sum(mul(x, x))"),
    ],
    "same_twice": [(e.maximum(X, X), "x")],
    "clip_again": [(e.minimum(e.minimum(X, ones_at(2)), ones_at(1)), "minimum(x, 1)")],
    "decided_selection": [
        (e.select(C, X, X), "x"),
        (e.select(e.logical_not(C), X, Y), "select(w, y, x)"),
        (e.select(C, e.select(C, X, Y), X), "x"),
    ],
    "double_negation": [
        (e.logical_not(e.logical_not(C)), "w"),
        (e.logical_not(e.eq(X, Y)), "ne(x, y)"),
    ],
    "decided_logic": [
        (e.logical_and(C, num(True, C)), "w"),
        (e.logical_and(C, num(False, C)), "0"),
    ],
    "needless_cast": [
        (e.astype(X, dtype=F64), "x"),
        (e.astype(e.astype(C, dtype=np.dtype(np.int64)), dtype=F64), "astype(w)"),
        (e.astype(e.astype(X, dtype=np.dtype(np.float32)), dtype=F64), "astype(astype(x))"),
    ],
    "stopped_twice": [(e.stop_gradient(e.stop_gradient(X)), "stop_gradient(x)")],
    "log_of_exp": [
        (e.log(e.exp(X)), "x"),
        (e.log(e.mul(e.exp(X), ones_at(1))), "x"),
        (e.log(e.mul(e.exp(X), ones_at(2))), "add(x, 0.693147)"),
    ],
    "log_of_one_plus_exp": [(e.log(e.add(ones_at(1), e.exp(X))), "softplus(x)")],
    "log_of_exp_plus_exp": [(e.log(e.add(e.exp(X), e.exp(Y))), "logaddexp(x, y)")],
    "log_of_expit": [
        (e.log(e.expit(X)), "neg(softplus(neg(x)))"),
        (e.log(e.sub(ones_at(1), e.expit(X))), "neg(softplus(x))"),
        (e.log(e.div(ones_at(1), e.add(ones_at(1), e.exp(e.neg(X))))), "neg(softplus(neg(x)))"),
    ],
    "log_of_one_plus": [
        (e.log(e.add(X, ones_at(1))), "log1p(x)"),
        (e.log(e.sub(ones_at(1), X)), "log1p(neg(x))"),
    ],
    "log_mean_exp": [],
    "log_sum_exp": [],
    "shifted_log_sum_exp": [
        (
            e.add(HIGH, e.log(SUM_SHIFTED)),
            f"add(log(reduce_sum(exp(sub(x, expand({FINITE_HIGH}))))), {FINITE_HIGH})",
        )
    ],
    "shifted_log_softmax": [
        (
            e.sub(SHIFTED, stretch(e.log(SUM_SHIFTED))),
            f"sub({FREED}, expand(log(reduce_sum(exp({FREED})))))",
        )
    ],
    "shifted_softmax": [
        (
            e.div(e.exp(SHIFTED), stretch(SUM_SHIFTED)),
            f"div(exp({FREED}), expand(reduce_sum(exp({FREED}))))",
        )
    ],
    "log1p_of_exp": [
        (e.log1p(e.exp(X)), "softplus(x)"),
        (e.log1p(e.neg(e.expit(X))), "neg(softplus(x))"),
        (e.log1p(e.expm1(X)), "x"),
    ],
    "logaddexp_of_zero": [(e.logaddexp(ones_at(0), X), "softplus(x)")],
    "exp_minus_one": [(e.sub(e.exp(X), ones_at(1)), "expm1(x)")],
    "logistic": [
        (e.div(ones_at(1), e.add(ones_at(1), e.exp(e.neg(X)))), "expit(x)"),
        (e.div(e.exp(X), e.add(ones_at(1), e.exp(X))), "expit(x)"),
    ],
    "softplus_minus_argument": [(e.sub(e.softplus(X), X), "softplus(neg(x))")],
    "move_constant": [(e.add(X, turn(const(2, Aval((4, 3), F64)))), "add(x, 2)")],
    "place_zeros": [(e.add(X, place(const(0, Aval((1, 2), F64)), (0, 1), (3, 4))), "x")],
    "zero_product": [(linalg.matmul(const(0, Aval((3, 3), F64)), X), "0")],
    "zero_recurrence": [
        (rd.recurrence(X, ones_at(0), 0), "0"),
        (rd.recurrence(ones_at(0), X, 0), "x"),
    ],
    "join_constants": [
        (e.add(X, sh._concatenate(*[const(2, Aval((3, 2), F64))] * 2, axis=1)), "add(x, 2)")
    ],
    "stretch_twice": [
        (stretch(sh._expand(sh._reduce_sum(S, axes=(0,)), shape=(3, 1))), "expand(reduce_sum(z))")
    ],
    "reshape_twice": [
        (sh._reshape(sh._reshape(X, shape=(12,)), shape=(6, 2)), "reshape(x)"),
        (sh._reshape(sh._reshape(X, shape=(12,)), shape=(3, 4)), "x"),
    ],
    "reshape_expanded": [(sh._reshape(stretch(S), shape=(3, 1, 4)), "expand(reshape(z))")],
    "reshape_basis": [(sh._reshape(PART, shape=(6, 2, 2)), "basis()")],
    "transpose_twice": [(turn(turn(X)), "x")],
    "transpose_ones": [(turn(S), "reshape(z)")],
    "transpose_expanded": [(turn(stretch(S)), "expand(reshape(z))")],
    "transpose_elementwise": [
        (turn(e.mul(turn(X), turn(Y))), "mul(x, y)"),
        (turn(e.mul(turn(X), turn(stretch(S)))), "mul(x, expand(z))"),
        (turn(e.mul(X, Y)), "transpose(mul(x, y))"),
    ],
    "transpose_unit": [(turn(UNIT), "basis()")],
    "slice_all": [(window(X, (0, 0), (3, 4)), "x")],
    "slice_twice": [(window(window(X, (1, 0), (2, 4)), (0, 1), (2, 2)), "slice(x)")],
    "slice_expanded": [(window(stretch(S), (1, 1), (2, 2)), "expand(slice(z))")],
    "slice_unslice": [
        (window(place(X, (1, 2), (9, 9)), (1, 2), (3, 4)), "x"),
        (window(place(X, (1, 2), (9, 9)), (2, 3), (1, 1)), "slice(x)"),
        (window(place(X, (1, 2), (9, 9)), (5, 0), (2, 2)), "0"),
        (window(place(X, (1, 2), (9, 9)), (0, 0), (2, 3)), "slice(unslice(x))"),
    ],
    "slice_joined": [(window(sh.concatenate([X, Y], 0), (3, 0), (3, 4)), "y")],
    "unslice_twice": [(place(place(X, (1, 0), (5, 4)), (0, 2), (5, 7)), "unslice(x)")],
    "sum_of_one": [(total(S, 1), "z")],
    "sum_of_constant": [(e.mul(X, stretch(total(ones_at(0.5), 1))), "mul(x, 2)")],
    "sum_of_sum": [(total(total(X, 0), 1), "reduce_sum(x)")],
    "sum_of_expanded": [
        (total(stretch(S), 1), "mul(z, 4)"),
        (total(stretch(S), 0), "expand(reduce_sum(z))"),
    ],
    "sum_of_transposed": [(total(turn(X), 0), "reshape(reduce_sum(x))")],
    "sum_of_negated": [
        (total(e.neg(X), 0), "neg(reduce_sum(x))"),
        (total(e.mul(X, ones_at(3)), 0), "mul(reduce_sum(x), 3)"),
    ],
    "product_with_own_inverse": [
        (
            e.mul_no_nan(e.div(num(1, S), S), S),
            "select(logical_and(isfinite(stop_gradient(z)), ne(stop_gradient(z), 0)), 1, "
            "select(ne(stop_gradient(z), stop_gradient(z)), stop_gradient(z), 0))",
        )
    ],
    "sum_of_product": [
        (total(e.mul(stretch(S), X), 1), "mul(reduce_sum(x), z)"),
        (total(e.div(X, stretch(S)), 1), "div(reduce_sum(x), z)"),
        (total(e.mul_no_nan(stretch(S), X), 1), "mul_no_nan(reduce_sum(x), z)"),
        (total(e.mul(stretch(S), X), 0), "reduce_sum(mul(expand(z), x))"),
    ],
    "product_with_basis": [
        (linalg.matmul(X, UNIT), "x"),
        (linalg.matmul(X, turn(UNIT)), "x"),
        (linalg.matmul(UNIT, turn(X)), "transpose(x)"),
        (linalg.matmul(PART, turn(X)), "unslice(transpose(x))"),
        (linalg.matmul(X, turn(PART)), "unslice(x)"),
    ],
}
INPUTS = [X, Y, S, C]
