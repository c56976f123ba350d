# cython: language_level=3, boundscheck=False, wraparound=False
# cython: binding=False, embedsignature=False, auto_pickle=False
"""Thin binding: passes the buffers of numpy arrays to the compiled kernel."""

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_WRITABLE, PyBuffer_Release
from cpython.buffer cimport PyObject_GetBuffer
from libc.math cimport erfc, log, log1p
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from time import sleep

import numpy as np

cdef extern from *:
    """
    /* Nothing of the binding is worth more of the compiler's time. */
    #if defined(__GNUC__) && !defined(__clang__)
    #pragma GCC optimize("Og")
    #endif
    """

cdef extern from "ensemble.h" nogil:
    ctypedef struct kb_pool_limits:
        double window, scale_window, least, advantage, square, lowest, highest
    void kb_follow_weights(int64_t rows, int64_t count, int64_t targets, const double *scores,
                           const double *mean, const double *var, const double *y, double *weight,
                           double *scale, double *benefit, double *used, double seen,
                           const kb_pool_limits *limits, double *room)

cdef extern from "kernel.h" nogil:
    enum:
        KB_NODES
        KB_FIRST
        KB_AGAIN
        KB_ROLE_REPLAY
        KB_ROLE_REPLAY_MEANS
        KB_NO_MEMORY
        KB_UNKNOWN_ACTIVATION
        KB_UNKNOWN_OBSERVATION
    ctypedef struct kb_constants:
        double nodes[32]
        double node_weights[32]
    const char *const *kb_constant_names
    ctypedef struct kb_activation:
        double code
    ctypedef struct kb_net:
        const kb_constants *k
        int64_t layers
        const int64_t *widths
        const kb_activation *activations
        int64_t paper
        int64_t separate
        int64_t observation
        int64_t labels
        int64_t classes
        int64_t learns_noise
        int64_t head
        int64_t robust
        int64_t drift
        int64_t printed
        int64_t directions
        double noise
        double hidden_noise
        double limit
        double spread
        double floor
        double least_noise
        double cap
        double slack
        double threshold
        double forget
        double repeats
        int64_t blocks
        const int64_t *pieces
        const int64_t *block_pieces
    ctypedef struct kb_state:
        pass
    ctypedef struct kb_lengths:
        pass
    ctypedef struct kb_records:
        double *mean
        double *function_var
        double *noise_var
        double *probability
        double *inlier
        double *status
    ctypedef struct kb_data:
        int64_t rows
        int64_t role
        const double *x
        const double *x_var
        const double *y
        const double *weight
    ctypedef struct kb_session:
        pass
    void kb_lengths_of(const kb_net *, kb_lengths *)
    int kb_open(kb_session **, const kb_net *, const kb_state *)
    void kb_switch_state(kb_session *, const kb_state *)
    void kb_close(kb_session *)
    int kb_run(kb_session *, const kb_data *, kb_records *, int)
    void kb_save(kb_session *, kb_state *)
    const int64_t *kb_counts(kb_session *)
    const double *kb_noise(const kb_session *)
    const char *kb_instruction_set()
    int kb_use_instruction_set(const char *)

cdef extern from "activation.h":
    enum:
        KB_ACTIVATIONS

cdef extern from "scale.h" nogil:
    int64_t kb_scale_rows(double *, int64_t, int64_t, const double *, const double *, double *,
                          double *, int64_t, const double *, int *, double *,
                          const kb_constants *)

cdef extern from "anomaly.h" nogil:
    enum:
        KB_STATISTICS
        KB_SIDES
        KB_SIDE_FIELDS
        KB_WINDOWS
        KB_WINDOW_ROWS
        KB_SEASON_FIELDS
        KB_RUN_BUCKETS
        KB_SCALARS
        KB_DETECTOR_INPUTS
        KB_DETECTOR_OUTPUTS
    ctypedef struct kb_detector_constants:
        pass
    ctypedef struct kb_detector:
        const kb_detector_constants *k
        int64_t capacity
        int64_t season_slots
        double *history
        double *counts
        double *tails
        double *windows
        double *season
        double *runs
        double *scalars
    void kb_detect_anomalies(const kb_detector *, const double *, int64_t, double, double *)

cdef extern from "calibration.h" nogil:
    enum:
        KB_CALIBRATION_FIELDS
        KB_PARAM_COUNT
        KB_SCORE_FIELDS
    void kb_update_calibration(double *, int64_t, int64_t, const double *, const double *,
                         const double *, int, int, double *, const kb_constants *)
    ctypedef struct kb_network_outputs:
        pass
    ctypedef struct kb_calibrated:
        pass
    void kb_calibrate_outputs(double *, int64_t, int64_t, const kb_network_outputs *, const double *, int, int,
                     kb_calibrated *, const kb_constants *)
    void kb_update_count_mixture(double *, int64_t, const double *, double *, const kb_constants *)
    void kb_update_count_intervals(double *, int64_t, const double *, const double *, const double *, int,
                          double *, const kb_constants *)
    void kb_mixture_edges(const double *, int64_t, double, double, int, double *, double *,
                  const kb_constants *)
    void kb_score_rows(const double *, const double *, int64_t, double *, const kb_constants *)

cdef extern from "temperature.h" nogil:
    enum:
        KB_MOST_POWERS
    ctypedef struct kb_temperature:
        int64_t powers
        int64_t classes
        const double *power
        const double *log_prior
        double *known
        double *work
    void kb_apply_temperature(const kb_temperature *, int64_t, const double *, const double *,
                             const double *, double *, const kb_constants *)

cdef extern from "batched.h" nogil:
    enum:
        KB_LEFT
    ctypedef struct kb_packed_layout:
        int64_t size
        int64_t kept
        int64_t keep
        int64_t summed
        int64_t drawn
        int64_t bins
    ctypedef struct kb_learn_options:
        pass
    ctypedef struct kb_batched_rows:
        int64_t rows
        const int64_t *order
        const int64_t *at
        const double *x
        const double *y
        const double *weight
        const unsigned char *alone
        const double *fixed
    ctypedef struct kb_batched_outputs:
        double *mean
        double *sd
        double *function_sd
        double *noise_sd
        double *outlier
        double *stated
        double *judged
        int64_t *status
        unsigned char *done
    int kb_batched_learn(kb_session **, const kb_net *, const kb_packed_layout *, const kb_learn_options *, double *,
                      const kb_batched_rows *, const kb_batched_outputs *)
    void kb_batched_count(const kb_packed_layout *, double *, int64_t, const int64_t *, const double *,
                       const int64_t *, const int64_t *, const double *, const kb_constants *)

cdef extern from "decimals.h" nogil:
    int64_t kb_count_lines(const char *, int64_t)
    int kb_parse_decimals(const char *, int64_t, char, int64_t, int64_t, double *)

cdef extern from "columns.h" nogil:
    enum:
        KB_LARGE
        KB_SMALL
    ctypedef struct kb_constant:
        double origin, total, shift, spread
    void kb_sum_in_order(double *, const double **, int64_t, int64_t)
    void kb_update_constant(kb_constant *, int, const double *, const double *, int64_t, double)
    int kb_exceeds_limits(const double *, int64_t, double, double)
    void kb_stack_columns(const double **, int64_t, int64_t, double *)

cdef extern from "information.h" nogil:
    void kb_keep_information(double *, const double *, const int64_t *, int64_t, double, double *)

cdef extern from "series.h" nogil:
    int KB_SERIES_COUNTS
    ctypedef struct kb_smoothing_rule:
        double alpha
    ctypedef struct kb_series:
        int64_t season, rules, seasonal_rules, lags, order, recent_rows
        const kb_smoothing_rule *rule
        const double *constants
        const double *prior_var
        double *counts
        double *start
        double *level
        double *trend
        double *square
        double *seasonal
        double *weight
        double *cov
        double *recent
        double *errors
    void kb_learn_series(kb_series *, const double *, int64_t, int64_t, double *, double *)
    void kb_forecast_series(const kb_series *, int64_t, double *, double *)

cdef object _empty = np.empty


cdef class _Buffer:
    """The memory of a contiguous array of doubles or 64-bit integers."""

    cdef Py_buffer view
    cdef int64_t length
    cdef void *at

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef _Buffer _buffer(object array, str name, bint write=False, bint whole=False):
    cdef _Buffer buffer = _Buffer.__new__(_Buffer)
    _view(array, name, write, whole, &buffer.view)
    buffer.at = buffer.view.buf
    buffer.length = buffer.view.len // 8
    return buffer


cdef int _view(object array, str name, bint write, bint whole, Py_buffer *view) except -1:
    """The buffer of a contiguous array of doubles, or of 64-bit integers."""
    cdef char kind
    try:
        PyObject_GetBuffer(array, view, PyBUF_ND | PyBUF_FORMAT | (PyBUF_WRITABLE if write else 0))
    except (BufferError, ValueError, TypeError) as error:
        raise ValueError(f"{name} must be a contiguous array ({error})") from None
    kind = view.format[0] if view.format != NULL else 0
    if view.itemsize == 8 and (kind == c"l" or kind == c"q" if whole else kind == c"d"):
        return 0
    PyBuffer_Release(view)
    raise ValueError(f"{name} must hold 8-byte {'integers' if whole else 'floats'}")


cdef class Constants:
    """The constants of kbnn.core.constants as the kernel's struct."""

    cdef kb_constants k
    cdef readonly tuple names

    def __init__(self, ask, nodes, node_weights):
        cdef double *place = <double *>&self.k
        cdef _Buffer at = _buffer(nodes, "nodes"), weights = _buffer(node_weights, "node_weights")
        cdef int64_t i = 0
        cdef list names = []
        if at.length != KB_NODES or weights.length != KB_NODES:
            raise ValueError(f"the kernel takes {KB_NODES} nodes, got {at.length}")
        while kb_constant_names[i] != NULL:
            names.append(kb_constant_names[i].decode())
            place[i] = ask(names[i])
            i += 1
        self.names = tuple(names)
        for i in range(KB_NODES):
            self.k.nodes[i] = (<const double *>at.at)[i]
            self.k.node_weights[i] = (<const double *>weights.at)[i]


cdef class Net:
    """A configuration and its layout in the kernel's terms."""

    cdef kb_net net
    cdef kb_lengths lengths
    cdef tuple kept

    def __init__(self, Constants constants, widths, activations, options, numbers, pieces,
                 block_pieces):
        cdef _Buffer wide = _buffer(widths, "widths", False, True)
        cdef _Buffer hidden = _buffer(activations, "activations")
        cdef _Buffer piece = _buffer(pieces, "pieces", False, True)
        cdef _Buffer ends = _buffer(block_pieces, "block_pieces", False, True)
        if hidden.length != 4 * max(wide.length - 2, 0):
            raise ValueError("activations must have a row for each hidden layer")
        self.kept = (constants, wide, hidden, piece, ends)
        self.net.k = &constants.k
        self.net.layers = wide.length - 1
        self.net.widths = <const int64_t *>wide.at
        self.net.activations = <const kb_activation *>hidden.at
        (self.net.paper, self.net.separate, self.net.observation, self.net.labels,
         self.net.classes, self.net.learns_noise, self.net.head, self.net.robust, self.net.drift,
         self.net.printed, self.net.directions) = options
        (self.net.noise, self.net.hidden_noise, self.net.limit, self.net.spread,
         self.net.floor, self.net.least_noise, self.net.cap, self.net.slack,
         self.net.threshold, self.net.forget, self.net.repeats) = numbers
        self.net.blocks = ends.length - 1
        self.net.pieces = <const int64_t *>piece.at
        self.net.block_pieces = <const int64_t *>ends.at
        kb_lengths_of(&self.net, &self.lengths)


cdef class Session:
    """A state in the kernel's working memory, see kbnn.core.kernel.Session.

    `state` is a named tuple whose arrays come last, in the order of the C struct; `records` makes
    the named tuple of what happened at each row.

    It is busy while rows run without the interpreter's lock: other threads wait. A flag that is
    looked at and set under the interpreter's lock costs nothing where there is one thread. Between
    `begin_log` and `end_log` the result of every call is kept. After `rewind_log` the same calls
    return the same results without running again. A call that learns is logged before its rows run
    and nothing can fail in between, so that the log never differs from what was learned.
    """

    cdef kb_session *session
    cdef Net net
    cdef object records, blank, last
    cdef tuple names, shapes, counted
    cdef list log
    cdef Py_ssize_t place
    cdef bint busy
    cdef readonly bint has_learned

    def __cinit__(self, Net net, state, records, tuple names, tuple counted):
        cdef kb_state given
        cdef const int64_t *lengths = <const int64_t *>&net.lengths
        cdef void **place = <void **>&given
        cdef list held = []
        cdef _Buffer buffer
        self.net, self.records, self.names, self.counted = net, records, names, counted
        for k, name in enumerate(names):
            buffer = _buffer(getattr(state, name), name, False, name == "counts")
            if buffer.length != lengths[k]:
                raise ValueError(
                    f"{name} must have {lengths[k]} entries, got {buffer.length}")
            place[k] = buffer.at
            held.append(buffer)
        cdef int failed = kb_open(&self.session, &net.net, &given)
        if failed == KB_NO_MEMORY:
            raise MemoryError("not enough memory for the network's working copy")
        if failed == KB_UNKNOWN_ACTIVATION:
            codes = [int(net.net.activations[k].code) for k in range(net.net.layers - 1)]
            unknown = [code for code in codes if not 0 <= code < KB_ACTIVATIONS]
            raise ValueError(f"the kernel knows no activation {unknown[0]}")
        if failed == KB_UNKNOWN_OBSERVATION:
            raise ValueError(f"the kernel knows no observation {net.net.observation}")
        self.shapes = tuple([getattr(state, name).shape for name in names])
        self.blank = state._replace(**{name: None for name in names if name != "prior_var"})
        self.last = state

    def __dealloc__(self):
        kb_close(self.session)

    @property
    def config(self):
        return self.blank.config

    def begin_log(self):
        """Start to keep the result of every call."""
        self.log, self.place, self.has_learned = [], 0, False

    def rewind_log(self):
        """Return the logged results again, in their order, before running anything."""
        self.place = 0

    def end_log(self):
        """Discard the logged results."""
        self.log = None

    cdef object _logged(self):
        """Return the logged result of this call; None if the call has to run."""
        if self.log is None or self.place == len(self.log):
            return None
        self.place += 1
        return self.log[self.place - 1]

    cdef object _noted(self, result):
        if self.log is not None:
            self.log.append(result)
            self.place += 1
        return result

    cdef int _enter(self) except -1:
        """Wait until no other thread uses the session, then enter it at once."""
        while self.busy:
            sleep(2e-5)
        self.busy = True
        return 0

    @property
    def counts(self):
        cdef int64_t *counts
        logged = self._logged()
        if logged is not None:
            return logged
        self._enter()
        try:
            counts = <int64_t *>kb_counts(self.session)
            return self._noted({name: counts[k] for k, name in enumerate(self.counted)})
        finally:
            self.busy = False

    @property
    def noise(self):
        cdef _Buffer out
        cdef int64_t k
        logged = self._logged()
        if logged is not None:
            return logged
        shape = self.shapes[self.names.index("noise")]
        noise = _empty(shape)
        out = _buffer(noise, "noise", True)
        self._enter()
        for k in range(out.length):
            (<double *>out.at)[k] = kb_noise(self.session)[k]
        self.busy = False
        return self._noted(noise)

    def learn(self, x, y, x_var=None, weight=None, bint again=False):
        cdef kb_data data
        data.role = KB_AGAIN if again else KB_FIRST
        return self._rows(x, y, x_var, weight, &data, 1)

    def replay(self, x, y, x_var=None, weight=None, bint means_alone=False):
        cdef kb_data data
        data.role = KB_ROLE_REPLAY_MEANS if means_alone else KB_ROLE_REPLAY
        self._rows(x, y, x_var, weight, &data, 1)

    def predict(self, x, x_var=None):
        cdef kb_data data
        data.role = KB_FIRST
        return self._rows(x, None, x_var, None, &data, 0)

    def state(self):
        """Return the current state; later learning does not change it."""
        logged = self._logged()
        if logged is not None:
            return logged
        self._enter()
        try:
            if self.last is None:
                self.last = self._saved()
            return self._noted(self.last)
        finally:
            self.busy = False

    cdef object _saved(self):
        cdef kb_state out
        cdef void **place = <void **>&out
        cdef list held = []
        cdef _Buffer buffer
        new = {}
        for k, name in enumerate(self.names):
            if name == "prior_var":
                continue
            whole = name == "counts"
            new[name] = _empty(self.shapes[k], dtype=np.int64 if whole else np.float64)
            buffer = _buffer(new[name], name, True, whole)
            place[k] = buffer.at
            held.append(buffer)
        with nogil:
            kb_save(self.session, &out)
        return self.blank._replace(**new)

    cdef object _rows(self, x, y, x_var, weight, kb_data *data, int learn):
        cdef Py_buffer view[10]
        cdef int views = 0, k, failed
        cdef kb_records out
        cdef double **place = <double **>&out
        cdef int64_t n
        cdef const kb_net *net = &self.net.net
        cdef int64_t inputs = net.widths[0] - net.directions
        result = self._logged()
        if result is not None:
            return result
        try:
            n = data.rows = _table(x, "x", -1, inputs, &view[views], &data.x)
            views += 1
            data.x_var = data.y = data.weight = NULL
            if x_var is not None:
                _table(x_var, "x_var", n, inputs, &view[views], &data.x_var)
                views += 1
            if learn:
                _table(y, "y", n, net.labels, &view[views], &data.y)
                views += 1
            if weight is not None:
                _table(weight, "weight", n, -1, &view[views], &data.weight)
                views += 1
            wide = (n, net.widths[net.layers])
            made = (_empty(wide), _empty(wide), _empty(wide), _empty((n, net.classes)),
                    _empty(n), _empty(n))
            for k in range(6):
                _view(made[k], "record", True, False, &view[views])
                place[k] = <double *>view[views].buf
                views += 1
            result = self.records(made)
            self._enter()
            try:
                self._noted(result)
                if learn and n:
                    self.last = None
                    self.has_learned = True
                with nogil:
                    failed = kb_run(self.session, data, &out, learn)
                if failed:
                    if self.log is not None:
                        self.log.pop()
                        self.place -= 1
                    raise MemoryError("not enough memory to rehearse rows")
            finally:
                self.busy = False
        finally:
            for k in range(views):
                PyBuffer_Release(&view[k])
        return result


cdef class BatchedSession:
    """Working memory for batched models of one network (kbnn.fleet.batched).

    Each is a row of numbers that begins with its state: the arrays one after another, in the order
    of the C struct. `form` holds offsets and lengths of the other parts, see kb_packed_layout.
    """

    cdef kb_session *session
    cdef Net net
    cdef object records
    cdef int64_t length
    cdef kb_packed_layout form

    def __cinit__(self, Net net, records, form):
        cdef const int64_t *lengths = <const int64_t *>&net.lengths
        cdef int64_t *place = <int64_t *>&self.form
        cdef int64_t k, last = <int64_t>(sizeof(kb_packed_layout) // sizeof(int64_t))
        self.net, self.records = net, records
        for k in range(<int64_t>(sizeof(kb_lengths) // sizeof(int64_t))):
            self.length += lengths[k]
        if len(form) != last:
            raise ValueError(f"a form has {last} numbers, got {len(form)}")
        for k in range(last):
            place[k] = form[k]
        k = net.net.widths[0] - net.net.directions + 4
        if (net.net.classes or net.net.widths[net.net.layers] != 1
                or self.length > self.form.size
                or self.form.kept + self.form.keep * k > self.form.size or self.form.keep < 1):
            raise ValueError("the form is not one of this network")

    def __dealloc__(self):
        kb_close(self.session)

    cdef double *_models(self, _Buffer models, _Buffer places) except NULL:
        """Return where the models begin, after checking layout and indices."""
        cdef int64_t k, held
        if models.view.ndim != 2 or models.view.shape[1] != self.form.size:
            raise ValueError("models must be rows of numbers of the form")
        held = models.view.shape[0]
        for k in range(places.length):
            if not 0 <= (<const int64_t *>places.at)[k] < held:
                raise IndexError("there is no such model")
        return <double *>models.at

    cdef void _at(self, double *belief, kb_state *state) noexcept nogil:
        cdef const int64_t *lengths = <const int64_t *>&self.net.lengths
        cdef void **place = <void **>state
        cdef int64_t k
        for k in range(<int64_t>(sizeof(kb_lengths) // sizeof(int64_t))):
            place[k] = belief
            belief += lengths[k]

    def predict(self, models, at, x):
        """Predict one row with each of the models at these indices."""
        cdef _Buffer all_models = _buffer(models, "models", True)
        cdef _Buffer places = _buffer(at, "at", False, True), rows = _buffer(x, "x")
        cdef double *first = self._models(all_models, places)
        cdef const kb_net *net = &self.net.net
        cdef int64_t inputs = net.widths[0] - net.directions, n = places.length, k
        cdef int failed = 0
        cdef kb_data data
        cdef kb_records out
        cdef kb_state state
        cdef _Buffer made_mean, made_var, made_noise, made_inlier, made_status
        if rows.length != n * inputs:
            raise ValueError("x must have a row for each place")
        made = (_empty((n, 1)), _empty((n, 1)), _empty((n, 1)), _empty((n, 0)), _empty(n), _empty(n))
        made_mean, made_var = _buffer(made[0], "record", True), _buffer(made[1], "record", True)
        made_noise = _buffer(made[2], "record", True)
        made_inlier, made_status = _buffer(made[4], "record", True), _buffer(made[5], "record", True)
        data.rows, data.role, data.x_var, data.y, data.weight = 1, KB_FIRST, NULL, NULL, NULL
        out.probability = NULL
        with nogil:
            for k in range(n):
                self._at(first + (<const int64_t *>places.at)[k] * self.form.size, &state)
                if self.session == NULL:
                    failed = kb_open(&self.session, net, &state)
                    if failed:
                        break
                else:
                    kb_switch_state(self.session, &state)
                data.x = <const double *>rows.at + k * inputs
                out.mean = <double *>made_mean.at + k
                out.function_var = <double *>made_var.at + k
                out.noise_var = <double *>made_noise.at + k
                out.inlier = <double *>made_inlier.at + k
                out.status = <double *>made_status.at + k
                failed = kb_run(self.session, &data, &out, 0)
                if failed:
                    break
        if failed:
            raise MemoryError("not enough memory for the network's working copy")
        return self.records(made)

    def learn(self, models, order, at, x, y, weight, bytes alone, fixed, manner):
        """Learn rows with the models at their indices, in place, see kb_batched_learn.

        Return the outcome of each row (0: left alone), its status, and (mean, sd, function_sd,
        noise_sd, outlier, stated, judged).
        """
        cdef _Buffer all_models = _buffer(models, "models", True)
        cdef _Buffer turns = _buffer(order, "order", False, True)
        cdef _Buffer places = _buffer(at, "at", False, True), inputs = _buffer(x, "x")
        cdef _Buffer labels = _buffer(y, "y"), passing = _buffer(fixed, "fixed")
        cdef _Buffer weights = None if weight is None else _buffer(weight, "weight")
        cdef _Buffer limits = _buffer(manner, "manner", False, True)
        cdef double *first = self._models(all_models, places)
        cdef int64_t n = places.length, width = self.net.net.widths[0] - self.net.net.directions, k
        cdef kb_batched_rows rows
        cdef kb_batched_outputs said
        cdef double **place = <double **>&said
        cdef int failed
        if (turns.length != n or labels.length != n or inputs.length != n * width
                or len(alone) != n or passing.length != 1 + width
                or (weights is not None and weights.length != n)
                or limits.length != <int64_t>(sizeof(kb_learn_options) // sizeof(int64_t))):
            raise ValueError("order, x, y, weight and alone must have a row for each place")
        for k in range(n):
            if not 0 <= (<const int64_t *>turns.at)[k] < n:
                raise IndexError("there is no such row")
        made = tuple([_empty(n) for k in range(5)]) + (
            np.zeros((n, KB_PARAM_COUNT)), np.zeros((n, KB_SCORE_FIELDS)))
        status, done = np.zeros(n, np.int64), bytearray(n)
        cdef list held = [_buffer(one, "record", True) for one in made]
        for k in range(7):
            place[k] = <double *>(<_Buffer>held[k]).at
        cdef _Buffer bits = _buffer(status, "status", True, True)
        said.status = <int64_t *>bits.at
        said.done = <unsigned char *>done
        rows.rows, rows.order = n, <const int64_t *>turns.at
        rows.at = <const int64_t *>places.at
        rows.x, rows.y = <const double *>inputs.at, <const double *>labels.at
        rows.weight = NULL if weights is None else <const double *>weights.at
        rows.alone, rows.fixed = <const unsigned char *>alone, <const double *>passing.at
        with nogil:
            failed = kb_batched_learn(&self.session, &self.net.net, &self.form,
                                   <const kb_learn_options *>limits.at, first, &rows, &said)
        if failed:
            raise MemoryError("not enough memory for the network's working copy")
        return np.frombuffer(done, np.uint8), status, made

    def count(self, models, at, terms, drawn, bins, y):
        """Add scored rows to the records of the models at their indices, see kb_batched_count."""
        cdef _Buffer all_models = _buffer(models, "models", True)
        cdef _Buffer places = _buffer(at, "at", False, True), sums = _buffer(terms, "terms")
        cdef _Buffer shown = _buffer(drawn, "drawn", False, True)
        cdef _Buffer bin = _buffer(bins, "bins", False, True), labels = _buffer(y, "y")
        cdef double *first = self._models(all_models, places)
        cdef int64_t n = places.length, k
        if (sums.length != n * self.form.summed or bin.length != n or labels.length != n
                or shown.length != self.form.drawn):
            raise ValueError("terms, bins and y must have a row for each place")
        for k in range(n):
            if not 0 <= (<const int64_t *>bin.at)[k] < self.form.bins:
                raise IndexError("there is no such bin")
        with nogil:
            kb_batched_count(&self.form, first, n, <const int64_t *>places.at,
                          <const double *>sums.at, <const int64_t *>shown.at,
                          <const int64_t *>bin.at, <const double *>labels.at, self.net.net.k)


cdef int64_t _table(object array, str name, int64_t rows, int64_t width, Py_buffer *view,
                    const double **at) except -1:
    """Where (rows, width) numbers begin, (rows,) for a width of -1; how many rows there are."""
    _view(array, name, False, False, view)
    at[0] = <const double *>view.buf
    if (view.ndim == (1 if width < 0 else 2) and (rows < 0 or view.shape[0] == rows)
            and (width < 0 or view.shape[1] == width)):
        return view.shape[0]
    shape = tuple([view.shape[k] for k in range(view.ndim)])
    PyBuffer_Release(view)
    wanted = f"({rows},)" if width < 0 else f"({'rows' if rows < 0 else rows}, {width})"
    raise ValueError(f"{name} must have shape {wanted}, got {shape}")


def normal_cdf(u, out):
    """out = Phi(u)."""
    cdef _Buffer given = _buffer(u, "u"), to = _buffer(out, "out", True)
    cdef int64_t i
    if given.length != to.length:
        raise ValueError("u and out must have one length")
    for i in range(to.length):
        (<double *>to.at)[i] = 0.5 * erfc(-0.7071067811865476 * (<double *>given.at)[i])


def normal_log_cdf(u, out):
    """out = log Phi(u); where erfc underflows, by its asymptotic series."""
    cdef _Buffer given = _buffer(u, "u"), to = _buffer(out, "out", True)
    cdef int64_t i
    cdef double v, w
    if given.length != to.length:
        raise ValueError("u and out must have one length")
    for i in range(to.length):
        v = (<double *>given.at)[i]
        if v > 0.0:
            (<double *>to.at)[i] = log1p(-0.5 * erfc(0.7071067811865476 * v))
        elif v > -37.0:
            (<double *>to.at)[i] = log(0.5 * erfc(-0.7071067811865476 * v))
        else:
            w = 1.0 / (v * v)
            (<double *>to.at)[i] = (-0.5 * v * v - 0.9189385332046727 - log(-v)
                                    + log1p(-w * (1.0 - 3.0 * w * (1.0 - 5.0 * w))))


def follow_weights(scores, mean, var, y, weight, scale, benefit, used, double rows, limits):
    """Update the weights of an ensemble row by row, as kbnn.model.ensemble.follow_weights does."""
    cdef _Buffer p = _buffer(scores, "scores"), said = _buffer(mean, "mean")
    cdef _Buffer doubt = _buffer(var, "var"), labels = _buffer(y, "y")
    cdef _Buffer w = _buffer(weight, "weight", True), wide = _buffer(scale, "scale", True)
    cdef _Buffer gain = _buffer(benefit, "benefit", True), to = _buffer(used, "used", True)
    cdef int64_t n = labels.view.shape[0], targets = labels.view.shape[1], count = w.length
    cdef _Buffer room = _buffer(_empty(2 * count), "room", True)
    cdef double *lower = <double *>room.at
    cdef kb_pool_limits bounds
    if (p.length != (0 if targets else n * count) or said.length != n * count * targets
            or doubt.length != said.length or to.length != n * (count + 1) or gain.length != count
            or wide.length != 1):
        raise ValueError("the arrays of an ensemble must have one width")
    bounds.window, bounds.scale_window, bounds.least = limits[:3]
    bounds.advantage, bounds.square, bounds.lowest, bounds.highest = limits[3:]
    with nogil:
        kb_follow_weights(n, count, targets, <const double *>p.at, <const double *>said.at,
                          <const double *>doubt.at, <const double *>labels.at, <double *>w.at,
                          <double *>wide.at, <double *>gain.at, <double *>to.at, rows, &bounds,
                          lower)


def scale_rows(columns, y, x, fixed, Constants constants):
    """Labels and inputs of the first rows, standardised in order, and whether one outgrew them."""
    cdef _Buffer stats = _buffer(columns, "columns", True), seen = _buffer(y, "y")
    cdef _Buffer given = _buffer(x, "x"), same = _buffer(fixed, "fixed")
    cdef int64_t rows = given.view.shape[0], targets = seen.view.shape[1]
    cdef int64_t inputs = given.view.shape[1], done
    cdef int outgrown
    if (stats.length != 7 * same.length or same.length != targets + inputs
            or seen.view.shape[0] != rows):
        raise ValueError("columns, y, x and fixed must have one width")
    labels, z = _empty((rows, targets)), _empty((rows, inputs))
    cdef _Buffer to = _buffer(labels, "labels", True), into = _buffer(z, "z", True)
    cdef _Buffer room = _buffer(_empty(stats.length), "room", True)
    with nogil:
        done = kb_scale_rows(<double *>stats.at, targets, inputs, <const double *>seen.at,
                             <const double *>given.at, <double *>to.at, <double *>into.at, rows,
                             <const double *>same.at, &outgrown, <double *>room.at, &constants.k)
    if done < rows:
        labels, z = labels[:done], z[:done]
    return labels, z, outgrown != 0


def update_calibration(tails, mean, sd, y, bint mix, bint track, Constants constants):
    """Return distributions (rows, targets, fields); update the state `tails` with each row."""
    cdef _Buffer known = _buffer(tails, "tails", True), means = _buffer(mean, "mean")
    cdef _Buffer sds = _buffer(sd, "sd"), seen = _buffer(y, "y")
    cdef int64_t rows = means.view.shape[0], targets = known.length // KB_CALIBRATION_FIELDS
    if (known.length != targets * KB_CALIBRATION_FIELDS or means.length != rows * targets
            or sds.length != means.length or seen.length != means.length):
        raise ValueError("tails, mean, sd and y must have one number of targets")
    stated = _empty((rows, targets, KB_PARAM_COUNT))
    cdef _Buffer out = _buffer(stated, "stated", True)
    with nogil:
        kb_update_calibration(<double *>known.at, targets, rows, <const double *>means.at,
                        <const double *>sds.at, <const double *>seen.at, mix, track,
                        <double *>out.at, &constants.k)
    return stated


def calibrate_outputs(tails, tuple said, y, bint mix, bint track, Constants constants):
    """Return distributions (rows, targets, fields), then mean, sd and its two parts.

    said    mean, function_var and noise_var (rows, targets), center and scale (targets,)
    y       labels, with which the state `tails` is updated; None: it is frozen
    """
    cdef Py_buffer view[12]
    cdef int views = 0, k
    cdef kb_network_outputs given
    cdef kb_calibrated out
    cdef const double **at = <const double **>&given
    cdef double **to = <double **>&out
    cdef double *known
    cdef const double *seen = NULL
    cdef int64_t rows = said[0].shape[0], targets = said[0].shape[1], length
    try:
        _view(tails, "tails", True, False, &view[views])
        known = <double *>view[views].buf
        views += 1
        if view[0].len != targets * KB_CALIBRATION_FIELDS * 8:
            raise ValueError("tails must have a row for each target")
        for k in range(5):
            _view(said[k], "said", False, False, &view[views])
            at[k] = <const double *>view[views].buf
            views += 1
            length = rows * targets if k < 3 else targets
            if view[views - 1].len != 8 * length:
                raise ValueError("what is said must have one number of targets")
        if y is not None:
            _table(y, "y", rows, targets, &view[views], &seen)
            views += 1
        wide = (rows, targets)
        made = (_empty((rows, targets, KB_PARAM_COUNT)), _empty(wide), _empty(wide), _empty(wide),
                _empty(wide))
        for k in range(5):
            _view(made[k], "made", True, False, &view[views])
            to[k] = <double *>view[views].buf
            views += 1
        with nogil:
            kb_calibrate_outputs(known, targets, rows, &given, seen, mix, track, &out, &constants.k)
    finally:
        for k in range(views):
            PyBuffer_Release(&view[k])
    return made


def update_count_mixture(tail, y, stated, Constants constants):
    """Write outlier share and dispersion of each row; update the state with each row."""
    cdef _Buffer known = _buffer(tail, "tail", True), seen = _buffer(y, "y")
    cdef _Buffer out = _buffer(stated, "stated", True)
    cdef int64_t rows = seen.length
    if known.length != KB_CALIBRATION_FIELDS or out.length != rows * KB_PARAM_COUNT:
        raise ValueError("y and stated must have one number of rows")
    with nogil:
        kb_update_count_mixture(<double *>known.at, rows, <const double *>seen.at, <double *>out.at,
                      &constants.k)


def update_count_intervals(tail, y, u, none, bint track, stated, Constants constants):
    """Write the gains of a count's intervals at each row; update the state with each row."""
    cdef _Buffer known = _buffer(tail, "tail", True), seen = _buffer(y, "y")
    cdef _Buffer places = _buffer(u, "u"), zero = _buffer(none, "none")
    cdef _Buffer out = _buffer(stated, "stated", True)
    cdef int64_t rows = seen.length
    if (known.length != KB_CALIBRATION_FIELDS or places.length != rows or zero.length != rows
            or out.length != rows * KB_PARAM_COUNT):
        raise ValueError("y, u, none and stated must have one number of rows")
    with nogil:
        kb_update_count_intervals(<double *>known.at, rows, <const double *>seen.at,
                         <const double *>places.at, <const double *>zero.at, track,
                         <double *>out.at, &constants.k)


def apply_temperature(known, probability, label, weight, grid, Constants constants):
    """Return tempered probabilities (rows, classes); with labels, update the state.

    grid    the powers, and the logarithms of their prior (2, powers)
    """
    cdef _Buffer kept = _buffer(known, "known", True), said = _buffer(probability, "probability")
    cdef _Buffer powers = _buffer(grid, "grid"), seen, counted
    cdef const double *labels = NULL
    cdef const double *weights = NULL
    cdef int64_t rows = probability.shape[0]
    cdef kb_temperature s
    s.powers, s.classes = powers.length // 2, probability.shape[1]
    if s.powers > KB_MOST_POWERS or kept.length != 1 + s.powers + s.classes:
        raise ValueError("known must have a place for each power and each class")
    if label is not None:
        seen = _buffer(label, "label")
        labels = <const double *>seen.at
        if seen.length != rows:
            raise ValueError("there must be a label for each row")
    if weight is not None:
        counted = _buffer(weight, "weight")
        weights = <const double *>counted.at
        if counted.length != rows:
            raise ValueError("there must be a weight for each row")
    stated, room = _empty((rows, s.classes)), _empty(3 * s.classes + s.powers)
    cdef _Buffer out = _buffer(stated, "stated", True), work = _buffer(room, "work", True)
    s.power, s.log_prior = <const double *>powers.at, <const double *>powers.at + s.powers
    s.known, s.work = <double *>kept.at, <double *>work.at
    with nogil:
        kb_apply_temperature(&s, rows, <const double *>said.at, labels, weights, <double *>out.at,
                            &constants.k)
    return stated


def mixture_edges(stated, double beyond, double z, bint plain, Constants constants):
    """Return lower and upper edges (2, rows) with probability `beyond` outside each."""
    cdef _Buffer said = _buffer(stated, "stated")
    cdef int64_t rows = said.length // KB_PARAM_COUNT
    if said.length != rows * KB_PARAM_COUNT:
        raise ValueError("stated must have whole rows")
    found = _empty((2, rows))
    cdef _Buffer out = _buffer(found, "found", True)
    with nogil:
        kb_mixture_edges(<const double *>said.at, rows, beyond, z, plain, <double *>out.at,
                 <double *>out.at + rows, &constants.k)
    return found


def detect_anomalies(tuple state, rows, double threshold, constants):
    """Score rows (n, 5) of an anomaly detector and update its state in place."""
    cdef _Buffer history = _buffer(state[0], "history", True)
    cdef _Buffer counts = _buffer(state[1], "counts", True)
    cdef _Buffer tails = _buffer(state[2], "tails", True)
    cdef _Buffer windows = _buffer(state[3], "windows", True)
    cdef _Buffer season = _buffer(state[4], "season", True)
    cdef _Buffer runs = _buffer(state[5], "runs", True)
    cdef _Buffer scalars = _buffer(state[6], "scalars", True)
    cdef _Buffer given = _buffer(rows, "rows"), fixed = _buffer(constants, "constants")
    cdef int64_t n = given.length // KB_DETECTOR_INPUTS
    cdef kb_detector d
    if (history.length % KB_STATISTICS or counts.length != 2 * KB_STATISTICS
            or tails.length != KB_SIDES * KB_SIDE_FIELDS
            or windows.length != KB_WINDOWS * KB_WINDOW_ROWS
            or season.length % KB_SEASON_FIELDS or runs.length != 4 * KB_RUN_BUCKETS
            or scalars.length != KB_SCALARS or given.length != n * KB_DETECTOR_INPUTS
            or fixed.length * sizeof(double) != sizeof(kb_detector_constants)):
        raise ValueError("the arrays of the detector do not have its sizes")
    d.k = <const kb_detector_constants *>fixed.at
    d.capacity = history.length // KB_STATISTICS
    d.season_slots = season.length // KB_SEASON_FIELDS
    d.history = <double *>history.at
    d.counts = <double *>counts.at
    d.tails = <double *>tails.at
    d.windows = <double *>windows.at
    d.season = <double *>season.at
    d.runs = <double *>runs.at
    d.scalars = <double *>scalars.at
    scores = _empty((n, KB_DETECTOR_OUTPUTS))
    cdef _Buffer out = _buffer(scores, "scores", True)
    with nogil:
        kb_detect_anomalies(&d, <const double *>given.at, n, threshold, <double *>out.at)
    return scores


def score_rows(y, stated, Constants constants):
    """Score values (rows,) against their distributions (rows, fields): (fields, rows)."""
    cdef _Buffer seen = _buffer(y, "y"), said = _buffer(stated, "stated")
    cdef int64_t rows = seen.length
    if said.length != rows * KB_PARAM_COUNT:
        raise ValueError("y and stated must have one number of rows")
    judged = _empty((KB_SCORE_FIELDS, rows))
    cdef _Buffer out = _buffer(judged, "judged", True)
    with nogil:
        kb_score_rows(<const double *>seen.at, <const double *>said.at, rows, <double *>out.at,
                 &constants.k)
    return judged


def read_plain_row(x, list names, double smallest, double largest):
    """(1, D): the numbers that a dict has by these names; None where one is anything else."""
    row = _empty((1, len(names)))
    cdef Py_buffer view
    cdef double value, size
    cdef Py_ssize_t k = 0
    _view(row, "row", True, False, &view)
    try:
        for name in names:
            item = x.get(name)
            if type(item) is not float:
                return None
            value = item
            size = -value if value < 0.0 else value
            if not smallest < size < largest:
                return None
            (<double *>view.buf)[k] = value
            k += 1
    finally:
        PyBuffer_Release(&view)
    return row


def copy_rows(list arrays, Py_ssize_t at, tuple parts):
    """Copy parts into arrays, from row `at` on; False where a part does not fit as it is."""
    cdef Py_buffer to, given
    cdef Py_ssize_t row, k
    cdef bint fits
    for k in range(len(arrays)):
        try:
            PyObject_GetBuffer(parts[k], &given, PyBUF_ND | PyBUF_FORMAT)
        except (BufferError, ValueError):
            return False
        try:
            PyObject_GetBuffer(arrays[k], &to, PyBUF_ND | PyBUF_FORMAT | PyBUF_WRITABLE)
            row = to.len // to.shape[0] if to.ndim and to.shape[0] else 0
            fits = (given.ndim == to.ndim and given.format[0] == to.format[0] and given.shape[0]
                    and given.len == row * given.shape[0] and at + given.shape[0] <= to.shape[0])
            if fits:
                memcpy(<char *>to.buf + at * row, given.buf, given.len)
            PyBuffer_Release(&to)
        finally:
            PyBuffer_Release(&given)
        if not fits:
            return False
    return True


cdef tuple _places(list columns, int64_t rows):
    """Return pointers to columns of this length, and the objects that keep them alive."""
    cdef int64_t width = len(columns), j
    cdef _Buffer places = _buffer(_empty(width, np.int64), "places", True, True), one
    cdef list held = []
    for j in range(width):
        one = _buffer(columns[j], "columns")
        if one.length != rows:
            raise ValueError("columns must have one number of rows")
        held.append(one)
        (<const double **>places.at)[j] = <const double *>one.at
    return places, held


def sum_in_order(sums, list columns):
    """To each of the sums its column, in the order of its rows; new sums."""
    cdef int64_t width = len(columns), rows = len(columns[0]) if width else 0
    added = np.array(sums)
    cdef _Buffer out = _buffer(added, "sums", True), places
    if out.length != width:
        raise ValueError("there must be a column for each sum")
    places, held = _places(columns, rows)
    kb_sum_in_order(<double *>out.at, <const double **>places.at, width, rows)
    return added


def update_constant(sums, y, weight, double limit):
    """Return Welford's sums (kbnn.metrics.scorecard) after more numbers; NaN origin: none yet."""
    counted = np.array(sums)
    cdef _Buffer out = _buffer(counted, "sums", True), given = _buffer(y, "y")
    cdef _Buffer each = _buffer(weight, "weight")
    if out.length != 4 or given.length != each.length:
        raise ValueError("there must be four sums, and a weight for each number")
    cdef kb_constant *constant = <kb_constant *>out.at
    kb_update_constant(constant, constant.origin != constant.origin, <const double *>given.at,
                      <const double *>each.at, given.length, limit)
    return counted


def keep_information(cov, prior_var, dims, double share):
    """Remove information from the blocks of a covariance vector in place."""
    cdef _Buffer blocks = _buffer(cov, "cov", True), prior = _buffer(prior_var, "prior_var")
    cdef _Buffer each = _buffer(dims, "dims", False, True)
    cdef _Buffer room = _buffer(_empty(prior.length), "room", True)
    if np.sum(dims) != prior.length or np.sum(dims * (dims + 1)) > 2 * blocks.length:
        raise ValueError("the blocks must have a prior variance for each weight")
    with nogil:
        kb_keep_information(<double *>blocks.at, <const double *>prior.at,
                            <const int64_t *>each.at, each.length, share, <double *>room.at)


cdef class _Series:
    """The arrays of a `kbnn.core.series_models.SeriesState`."""

    cdef kb_series at
    cdef list held

    cdef int open(self, tuple state, rules, constants, prior_var, bint write) except -1:
        cdef list parts = [_buffer(array, "state", write) for array in state]
        cdef _Buffer rule = _buffer(rules, "rules"), fixed = _buffer(constants, "constants")
        cdef _Buffer prior = _buffer(prior_var, "prior_var")
        cdef int64_t season = state[5].shape[1]
        cdef int64_t lengths[10]
        cdef double *at[10]
        cdef _Buffer part
        cdef int k
        for k in range(10):
            part = parts[k]
            at[k], lengths[k] = <double *>part.at, part.length
        cdef int64_t count = lengths[2], order = lengths[6]
        cdef int64_t lags = order - (9 if season else 3)
        if (lengths[0] != KB_SERIES_COUNTS or lengths[1] != 2 * season or lengths[3] != count
                or lengths[4] != count or lengths[5] != state[5].shape[0] * season
                or state[5].shape[0] > count or lengths[7] != order * order
                or lags < 1 or lengths[8] < max(lags + 1, 2 * season + 1)
                or lengths[9] != lengths[8] or rule.length != 5 * count or fixed.length != 9
                or prior.length != order):
            raise ValueError("the arrays of the series do not have its sizes")
        self.held = [*parts, rule, fixed, prior]
        self.at.season, self.at.rules, self.at.seasonal_rules = season, count, state[5].shape[0]
        self.at.order, self.at.lags = order, lags
        self.at.recent_rows = lengths[8]
        self.at.rule = <const kb_smoothing_rule *>rule.at
        self.at.constants, self.at.prior_var = <const double *>fixed.at, <const double *>prior.at
        self.at.counts, self.at.start, self.at.level, self.at.trend = at[0], at[1], at[2], at[3]
        self.at.square, self.at.seasonal, self.at.weight = at[4], at[5], at[6]
        self.at.cov, self.at.recent, self.at.errors = at[7], at[8], at[9]
        return 0

    cdef _Buffer make_room(self, int64_t steps):
        cdef int64_t size = 2 * self.at.order + self.at.rules
        return _buffer(_empty(size + 2 * (self.at.recent_rows + steps + 1)), "room", True)


def learn_series(tuple state, rules, constants, prior_var, y, int64_t steps):
    """Learn values in place; return forecasts (n, 2, steps) made before each."""
    cdef _Series series = _Series.__new__(_Series)
    series.open(state, rules, constants, prior_var, True)
    cdef _Buffer given = _buffer(y, "y"), room = series.make_room(steps)
    paths = _empty((given.length, 2, steps))
    cdef _Buffer out = _buffer(paths, "paths", True)
    with nogil:
        kb_learn_series(&series.at, <const double *>given.at, given.length, steps,
                        <double *>out.at, <double *>room.at)
    return paths


def forecast_series(tuple state, rules, constants, prior_var, int64_t steps):
    """Return the forecasts (2, steps) after the values learned."""
    cdef _Series series = _Series.__new__(_Series)
    series.open(state, rules, constants, prior_var, False)
    cdef _Buffer room = series.make_room(steps)
    path = _empty((2, steps))
    cdef _Buffer out = _buffer(path, "path", True)
    with nogil:
        kb_forecast_series(&series.at, steps, <double *>out.at, <double *>room.at)
    return path


def exceeds_limits(values, double smallest, double largest):
    """Whether one is larger than the largest, and whether one is closer to 0 than the smallest."""
    cdef _Buffer given = _buffer(values, "values")
    cdef int found = kb_exceeds_limits(<const double *>given.at, given.length, smallest, largest)
    return found & KB_LARGE != 0, found & KB_SMALL != 0


def stack_columns(list columns, x):
    """Columns (rows,) as those of x (rows, columns)."""
    cdef _Buffer into = _buffer(x, "x", True), places
    cdef int64_t rows = into.view.shape[0], width = len(columns)
    if into.length != rows * width:
        raise ValueError("columns and x must have one number of rows")
    places, held = _places(columns, rows)
    with nogil:
        kb_stack_columns(<const double **>places.at, width, rows, <double *>into.at)


def count_lines(bytes text):
    """How many newlines there are."""
    return kb_count_lines(text, len(text))


def parse_decimals(bytes text, str delimiter, int64_t columns):
    """The plain decimals of a whole text, (columns, lines); None when it is anything else."""
    cdef const char *at = text
    cdef char between = <char>ord(delimiter)
    cdef int64_t length = len(text), rows = kb_count_lines(at, length)
    cdef int plain
    numbers = _empty((columns, rows))
    cdef _Buffer out = _buffer(numbers, "numbers", True)
    with nogil:
        plain = kb_parse_decimals(at, length, between, columns, rows, <double *>out.at)
    return numbers if plain else None


def instruction_set():
    """The instruction set in use: avx512, avx2 or portable."""
    return kb_instruction_set().decode()


def use_instruction_set(str name):
    """Choose an instruction set, the best where none is named; False when this machine lacks it."""
    return kb_use_instruction_set(name.encode()) == 0
