# cython: language_level=3, boundscheck=False, wraparound=False
"""Thin binding: hands numpy buffers to the compiled rows."""

from libc.math cimport erfc
from libc.stdint cimport int64_t

cdef extern from "kernel.h" nogil:
    ctypedef struct kb_net:
        int64_t layers
        const int64_t *widths
        int64_t activation
        double alpha
        double beta
        int64_t paper
        int64_t separate
        int64_t observation
        int64_t learns_noise
        int64_t head
        int64_t robust
        int64_t drift
        int64_t printed
        double noise
        double hidden_noise
        double limit
        double spread
        int64_t blocks
        const int64_t *pieces
        const int64_t *block_pieces
    ctypedef struct kb_state:
        double *mean
        double *cov
        double *prior_mean
        const double *prior_var
        double *noise
        double *head_mean
        double *head_cov
        double *input_mean
        double *input_cov
        double *surprise
        int64_t *counts
    ctypedef struct kb_records:
        double *mean
        double *function_var
        double *noise_var
        double *probability
        double *inlier
        double *status
    ctypedef struct kb_data:
        int64_t rows
        int64_t labels
        int64_t fresh
        const double *x
        const double *x_var
        const double *y
        const double *weight
    int kb_learn(const kb_net *, kb_state *, const kb_data *, kb_records *)
    int kb_predict(const kb_net *, kb_state *, const kb_data *, kb_records *)
    const char *kb_instructions()
    int kb_use(const char *)


cdef extern from "scale.h" nogil:
    int64_t kb_scale_rows(double *, int64_t, const double *, double *, int64_t, const double *)


cdef const double *_const_doubles(const double[::1] view) noexcept:
    return &view[0] if view is not None and view.shape[0] else NULL


cdef double *_doubles(const double[::1] view) noexcept:
    # Without const, though predicting is given states that may not be written: it writes none.
    return <double *>_const_doubles(view)


cdef class Net:
    """A configuration and its layout in the kernel's terms."""

    cdef kb_net net
    cdef const int64_t[::1] widths, pieces, block_pieces

    def __init__(self, const int64_t[::1] widths, const int64_t[::1] options,
                 const double[::1] numbers, const int64_t[::1] pieces,
                 const int64_t[::1] block_pieces):
        self.widths, self.pieces, self.block_pieces = widths, pieces, block_pieces
        self.net.layers = widths.shape[0] - 1
        self.net.widths = &widths[0]
        (self.net.activation, self.net.paper, self.net.separate, self.net.observation,
         self.net.learns_noise, self.net.head, self.net.robust, self.net.drift,
         self.net.printed) = options
        (self.net.alpha, self.net.beta, self.net.noise, self.net.hidden_noise,
         self.net.limit, self.net.spread) = numbers
        self.net.blocks = block_pieces.shape[0] - 1
        self.net.pieces = &pieces[0]
        self.net.block_pieces = &block_pieces[0]


def run(Net net, list state, const int64_t[::1] counts, const double[::1] x,
        const double[::1] x_var, const double[::1] y, const double[::1] weight, list records,
        int64_t rows, int64_t labels, bint fresh, bint learn):
    """Run rows; `state` and `records` are flat arrays in the order of the C structs.

    Learning writes into them; predicting writes the records only.
    """
    cdef kb_state s
    cdef kb_records r
    cdef kb_data d
    s.mean = _doubles(state[0])
    s.cov = _doubles(state[1])
    s.prior_mean = _doubles(state[2])
    s.prior_var = _doubles(state[3])
    s.noise = _doubles(state[4])
    s.head_mean = _doubles(state[5])
    s.head_cov = _doubles(state[6])
    s.input_mean = _doubles(state[7])
    s.input_cov = _doubles(state[8])
    s.surprise = _doubles(state[9])
    s.counts = <int64_t *>&counts[0]
    r.mean = _doubles(records[0])
    r.function_var = _doubles(records[1])
    r.noise_var = _doubles(records[2])
    r.probability = _doubles(records[3])
    r.inlier = _doubles(records[4])
    r.status = _doubles(records[5])
    d.rows, d.labels, d.fresh = rows, labels, fresh
    d.x, d.x_var = _const_doubles(x), _const_doubles(x_var)
    d.y, d.weight = _const_doubles(y), _const_doubles(weight)
    cdef int failed
    with nogil:
        failed = kb_learn(&net.net, &s, &d, &r) if learn else kb_predict(&net.net, &s, &d, &r)
    if failed:
        raise MemoryError("not enough memory for the network's working copy")


def normal_cdf(const double[::1] u, double[::1] out):
    """out = Phi(u)."""
    cdef Py_ssize_t i
    for i in range(u.shape[0]):
        out[i] = 0.5 * erfc(-0.7071067811865476 * u[i])


def scale_rows(double[::1] columns, const double[::1] raw, double[::1] out, int64_t rows,
               const double[::1] fixed):
    """Standardise rows in order; returns how many were done before a column was outgrown."""
    cdef int64_t width = fixed.shape[0], done
    if not rows or not width:
        return rows
    with nogil:
        done = kb_scale_rows(&columns[0], width, &raw[0], &out[0], rows, &fixed[0])
    return done


def instructions() -> str:
    """The instruction set in use: avx512, avx2 or portable."""
    return kb_instructions().decode()


def use(name: str) -> bool:
    """Choose an instruction set; False when this machine lacks it."""
    return kb_use(name.encode()) == 0
