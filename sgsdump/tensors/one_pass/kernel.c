/* Single passes over floats: extremes of rows, as numpy computes them in compiled.py, and sums and bin counts, as in
 * statistics.py (of tensors, and of ranges). Vectors of any width give the same result. Arguments are addresses, which
 * compiled.py, the only caller, and its callers have to check. The GIL is released.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INTERFACE 6 /* compiled.py rejects a kernel with another number, left from another version */

/* Widest vectors of the processor, selected when the library is loaded, if the system supports this; GCC knows these
 * levels since version 12. */
#if __GNUC__ >= 12 && defined(__GLIBC__) && defined(__x86_64__)
#define FOR_EVERY_WIDTH __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_WIDTH
#endif

/* `rows` contiguous rows of `columns` values each; their extremes are results `place` and following. */
typedef struct {
    int64_t address, rows, columns, place;
} table_t;

/* Conversion between a float's bits and an integer with the same order; a NaN of either sign is beyond both
 * infinities. */
static inline int32_t ordered(int32_t bits)
{
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

/* The value at any address, aligned or not. */
static inline double at(const char *values, int64_t index)
{
    float value;
    memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
}

FOR_EVERY_WIDTH static void find_ends(const char *values, int64_t count, int32_t *lowest, int32_t *highest)
{
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (int64_t i = 0; i < count; i++) {
        int32_t bits, value;
        memcpy(&bits, values + i * sizeof bits, sizeof bits);
        value = ordered(bits);
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    *lowest = low;
    *highest = high;
}

static void ends_of_rows(const table_t *tables, int64_t count, float *low, float *high)
{
    const int32_t infinity = 0x7f800000, nan = 0x7fc00000;
    for (const table_t *table = tables; table < tables + count; table++)
        for (int64_t row = 0; row < table->rows; row++) {
            const char *values = (const char *)(uintptr_t)table->address + row * table->columns * sizeof(float);
            int32_t ends[2];
            find_ends(values, table->columns, &ends[0], &ends[1]);
            if (ends[0] < ordered((int32_t)(infinity | INT32_MIN)) || ends[1] > infinity)
                ends[0] = ends[1] = nan;
            ends[0] = ordered(ends[0]);
            ends[1] = ordered(ends[1]);
            memcpy(&low[table->place + row], &ends[0], sizeof *low);
            memcpy(&high[table->place + row], &ends[1], sizeof *high);
        }
}

#define BLOCK 1024
#define SPARE 16 /* extra bins that count excluded values in rotation, so that no count waits for the previous one */
#define TABLES 4 /* counts of equal bins, which neighbours often have, would wait for each other in one table */
#define UNSURE -1
#define MOST ((int64_t)1 << 31) /* values that a table counts */

/* Compute the bins of at most BLOCK values; return the number of zeros. */
FOR_EVERY_WIDTH static int32_t find_bins(const char *values, int32_t count, float scale, float side, int32_t *bins)
{
    int32_t zeros = 0;
    for (int32_t i = 0; i < count; i++) {
        float value, place;
        int32_t bits, zero, bin;
        memcpy(&value, values + i * sizeof value, sizeof value);
        memcpy(&bits, values + i * sizeof bits, sizeof bits);
        zero = (bits & 0x7fffffff) == 0;
        zeros += zero;
        place = value * scale;
        place = place >= -side ? place : -side;
        place = place < side ? place : side - 1;
        bin = (int32_t)place;
        bin += (int32_t)side - ((float)bin > place);
        bins[i] = (bin & (zero - 1)) | ((2 * (int32_t)side + (i & (SPARE - 1))) & -zero); /* branches are slower */
    }
    return zeros;
}

/* Add all values but zeros to the counts; return the number of zeros. `table`: 2 * side + SPARE counts, all 0. */
static int64_t count_in_bins(const char *values, int64_t size, float scale, int32_t side, uint32_t *table, int64_t *counts)
{
    int64_t zeros = 0;
    int32_t bins[BLOCK];
    for (int64_t start = 0; start < size; start += BLOCK) {
        int32_t count = (int32_t)(size - start < BLOCK ? size - start : BLOCK), half = count / 2;
        zeros += find_bins(values + start * sizeof(float), count, scale, (float)side, bins);
        for (int32_t i = 0; i < half; i++) { /* neighbours are often equal: a count would wait for the previous one */
            table[bins[i]]++;
            table[bins[half + i]]++;
        }
        if (count & 1)
            table[bins[count - 1]]++;
    }
    for (int32_t bin = 0; bin < 2 * side; bin++)
        counts[bin] += table[bin];
    return zeros;
}

/* Exponent of the smallest power of two above the magnitude of every value. */
static int exponent_above(const char *values, int64_t size, int smallest)
{
    int32_t ends[2];
    float low, high;
    int exponent = smallest;
    if (!size)
        return smallest;
    find_ends(values, size, &ends[0], &ends[1]);
    ends[0] = ordered(ends[0]);
    ends[1] = ordered(ends[1]);
    memcpy(&low, &ends[0], sizeof low);
    memcpy(&high, &ends[1], sizeof high);
    if (low != 0 || high != 0)
        frexpf(fabsf(low) > fabsf(high) ? low : high, &exponent);
    return exponent > smallest ? exponent : smallest;
}

/* Parameters that map a value of [low, high] to its bin; `half` keeps the width of the widest spans finite. */
typedef struct {
    double low, high, half, origin, width, bins;
} span_t;

static inline int32_t bin_between(double value, int32_t spare, span_t span)
{
    int32_t inside = (value >= span.low) & (value <= span.high);
    double place = (value * span.half - span.origin) / span.width * span.bins;
    place = place >= 0 ? place : 0;
    place = place < span.bins ? place : span.bins - 1;
    return ((int32_t)place & -inside) | (((int32_t)span.bins + (spare & (SPARE - 1))) & (inside - 1));
}

/* Compute the bins of at most BLOCK values; values outside use the extra bins. */
FOR_EVERY_WIDTH static void find_bins_between(const char *values, int32_t count, span_t span, int32_t *bins)
{
    for (int32_t i = 0; i < count; i++)
        bins[i] = bin_between(at(values, i), i, span);
}

/* Return whether find_bins_fast can be used: the ends are floats, and no result is subnormal or infinite. */
static int can_be_fast(span_t span)
{
    double scale = span.bins / span.width;
    return span.bins <= 1 << 13 && (float)span.low == span.low && (float)span.high == span.high &&
           span.width <= FLT_MAX && scale >= FLT_MIN && scale <= 1 / (FLT_MIN * 4096);
}

/* The same in float, without division. The place differs from that of bin_between by less than span.bins * 2^-22, three
 * roundings of 2^-24. Values closer than this to an inner edge get UNSURE; return their number. */
FOR_EVERY_WIDTH static int32_t find_bins_fast(const char *values, int32_t count, span_t span, int32_t *bins)
{
    const float low = (float)span.low, high = (float)span.high, last = (float)span.bins - 0.5f;
    const float scale = (float)(span.bins / span.width), sure = 0.5f - (float)span.bins / (1 << 22);
    int32_t unsure = 0;
    for (int32_t i = 0; i < count; i++) {
        float value, place, beside;
        int32_t bin, inside, near;
        memcpy(&value, values + i * sizeof value, sizeof value);
        inside = (value >= low) & (value <= high);
        place = (value - low) * scale;
        place = place >= 0.5f ? place : 0.5f; /* the first and the last bin have no edge outside */
        place = place < last ? place : last;
        bin = (int32_t)place;
        beside = place - (float)bin - 0.5f;
        near = (beside > sure) | (beside < -sure);
        unsure += near;
        bin |= -near; /* UNSURE */
        bins[i] = inside ? bin : (int32_t)span.bins + (i & (SPARE - 1));
    }
    return unsure;
}

/* Add to the counts. `table`: TABLES times as many counts and SPARE more, all 0. */
static void count_between(const char *values, int64_t size, span_t span, uint32_t *table, int64_t *counts)
{
    int32_t bins[BLOCK], all = (int32_t)span.bins, width = all + SPARE, fast = can_be_fast(span);
    for (int64_t start = 0; start < size; start += BLOCK) {
        const char *block = values + start * sizeof(float);
        int32_t count = (int32_t)(size - start < BLOCK ? size - start : BLOCK), i = 0;
        if (!fast || find_bins_fast(block, count, span, bins) > BLOCK / 16)
            find_bins_between(block, count, span, bins);
        for (; i + TABLES <= count; i += TABLES)
            for (int32_t turn = 0; turn < TABLES; turn++) {
                int32_t bin = bins[i + turn];
                table[turn * width + (bin == UNSURE ? bin_between(at(block, i + turn), 0, span) : bin)]++;
            }
        for (; i < count; i++)
            table[bins[i] == UNSURE ? bin_between(at(block, i), 0, span) : bins[i]]++;
    }
    for (int32_t turn = 0; turn < TABLES; turn++)
        for (int32_t bin = 0; bin < all; bin++) {
            counts[bin] += table[turn * width + bin];
            table[turn * width + bin] = 0;
        }
}

FOR_EVERY_WIDTH static int64_t count_outside(const char *values, int64_t size, double low, double high)
{
    int64_t outside = 0;
    for (int64_t i = 0; i < size; i++) {
        double value = at(values, i);
        outside += ((value < low) | (value > high)) & (fabs(value) <= FLT_MAX);
    }
    return outside;
}

#define LEAF 128 /* values that numpy adds in LANES sums; more values are halved */
#define LANES 8

typedef struct {
    double total, squares;
} sums_t;

/* Sum each lane of `rows` rows. */
FOR_EVERY_WIDTH static void sum_lanes(const char *values, int64_t rows, double *total, double *squares)
{
    double sums[LANES] = {0}, more[LANES] = {0};
    for (int64_t row = 0; row < rows; row++)
        for (int lane = 0; lane < LANES; lane++) {
            double value = at(values, row * LANES + lane);
            sums[lane] += value;
            more[lane] += value * value;
        }
    for (int lane = 0; lane < LANES; lane++)
        total[lane] = sums[lane];
    for (int lane = 0; lane < LANES; lane++)
        squares[lane] = more[lane];
}

static double of_lanes(const double *lanes)
{
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* Sums of the values and of their squares, in the order of numpy's sum of contiguous float64 values. */
static sums_t pairwise(const char *values, int64_t count)
{
    sums_t sums = {0, 0};
    int64_t rows = count / LANES;
    if (count > LEAF) {
        int64_t half = count / 2 - count / 2 % LANES;
        sums_t others = pairwise(values + half * sizeof(float), count - half);
        sums = pairwise(values, half);
        sums.total += others.total;
        sums.squares += others.squares;
        return sums;
    }
    if (rows) {
        double total[LANES], squares[LANES];
        sum_lanes(values, rows, total, squares);
        sums.total = of_lanes(total);
        sums.squares = of_lanes(squares);
    }
    for (int64_t i = rows * LANES; i < count; i++) {
        sums.total += at(values, i);
        sums.squares += at(values, i) * at(values, i);
    }
    return sums;
}

typedef struct {
    int32_t low, high; /* ordered; low > high without a finite value */
    sums_t sums;
    int64_t nan, minus, plus;
} summary_t;

/* `finite`: place for a chunk of values. */
static void summarise(const char *values, int64_t size, int64_t chunk, char *finite, summary_t *found)
{
    const int32_t infinity = 0x7f800000, minus = ordered((int32_t)(0x7f800000 | INT32_MIN));
    for (int64_t start = 0; start < size; start += chunk) {
        const char *part = values + start * sizeof(float);
        int64_t count = size - start < chunk ? size - start : chunk;
        int32_t low, high;
        sums_t sums;
        find_ends(part, count, &low, &high);
        if (low <= minus || high >= infinity) {
            int64_t kept = 0;
            for (int64_t i = 0; i < count; i++) {
                int32_t bits;
                memcpy(&bits, part + i * sizeof bits, sizeof bits);
                memcpy(finite + kept * sizeof bits, &bits, sizeof bits);
                kept += (bits & infinity) != infinity;
                found->plus += bits == infinity;
                found->minus += bits == (infinity | INT32_MIN);
                found->nan += (bits & INT32_MAX) > infinity;
            }
            part = finite;
            count = kept;
            find_ends(part, count, &low, &high);
        }
        found->low = low < found->low ? low : found->low;
        found->high = high > found->high ? high : found->high;
        sums = pairwise(part, count);
        found->sums.total += sums.total;
        found->sums.squares += sums.squares;
    }
}

static PyObject *py_ends_of_rows(PyObject *module, PyObject *args)
{
    unsigned long long tables, low, high;
    Py_ssize_t count;
    (void)module;
    if (!PyArg_ParseTuple(args, "KnKK:ends_of_rows", &tables, &count, &low, &high))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    ends_of_rows((const table_t *)(uintptr_t)tables, count, (float *)(uintptr_t)low, (float *)(uintptr_t)high);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *py_count_in_bins(PyObject *module, PyObject *args)
{
    unsigned long long values, counts;
    long long zeros;
    Py_ssize_t size;
    int side, exponent;
    uint32_t *table;
    (void)module;
    if (!PyArg_ParseTuple(args, "KniiK:count_in_bins", &values, &size, &side, &exponent, &counts))
        return NULL;
    if (side < 1 || side > 1 << 20 || size >> 32) {
        PyErr_SetString(PyExc_ValueError, "too many bins, or more values than are counted at once");
        return NULL;
    }
    table = PyMem_Calloc(2 * (size_t)side + SPARE, sizeof *table);
    if (!table)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    exponent = exponent_above((const char *)(uintptr_t)values, size, exponent);
    zeros = count_in_bins((const char *)(uintptr_t)values, size, ldexpf((float)side, -exponent), side, table,
                          (int64_t *)(uintptr_t)counts);
    Py_END_ALLOW_THREADS;
    PyMem_Free(table);
    return Py_BuildValue("iL", exponent, zeros);
}

static PyObject *py_count_between(PyObject *module, PyObject *args)
{
    unsigned long long values, counts;
    Py_ssize_t size;
    span_t span;
    int bins;
    uint32_t *table;
    (void)module;
    if (!PyArg_ParseTuple(args, "KnddiK:count_between", &values, &size, &span.low, &span.high, &bins, &counts))
        return NULL;
    if (bins < 1 || bins > 1 << 20) {
        PyErr_SetString(PyExc_ValueError, "no bins, or too many");
        return NULL;
    }
    span.half = isinf(span.high - span.low) ? 0.5 : 1;
    span.origin = span.low * span.half;
    span.width = span.high * span.half - span.origin;
    span.bins = bins;
    table = PyMem_Calloc(TABLES * ((size_t)bins + SPARE), sizeof *table);
    if (!table)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t start = 0; start < size; start += MOST)
        count_between((const char *)(uintptr_t)values + start * sizeof(float), size - start < MOST ? size - start : MOST,
                      span, table, (int64_t *)(uintptr_t)counts);
    Py_END_ALLOW_THREADS;
    PyMem_Free(table);
    Py_RETURN_NONE;
}

static PyObject *py_count_outside(PyObject *module, PyObject *args)
{
    unsigned long long values;
    long long outside;
    Py_ssize_t size;
    double low, high;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kndd:count_outside", &values, &size, &low, &high))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    outside = count_outside((const char *)(uintptr_t)values, size, low, high);
    Py_END_ALLOW_THREADS;
    return PyLong_FromLongLong(outside);
}

static PyObject *py_summarise(PyObject *module, PyObject *args)
{
    unsigned long long values;
    Py_ssize_t size, chunk;
    summary_t found = {INT32_MAX, INT32_MIN, {0, 0}, 0, 0, 0};
    float low, high;
    char *finite;
    (void)module;
    if (!PyArg_ParseTuple(args, "Knn:summarise", &values, &size, &chunk))
        return NULL;
    if (chunk < 1 || chunk > 1 << 20) {
        PyErr_SetString(PyExc_ValueError, "no values in a chunk, or too many");
        return NULL;
    }
    finite = PyMem_Malloc((size_t)chunk * sizeof(float));
    if (!finite)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    summarise((const char *)(uintptr_t)values, size, chunk, finite, &found);
    Py_END_ALLOW_THREADS;
    PyMem_Free(finite);
    found.low = ordered(found.low);
    found.high = ordered(found.high);
    memcpy(&low, &found.low, sizeof low);
    memcpy(&high, &found.high, sizeof high);
    return Py_BuildValue("ddddLLL", (double)low, (double)high, found.sums.total, found.sums.squares,
                         (long long)found.nan, (long long)found.minus, (long long)found.plus);
}

static PyMethodDef methods[] = {
    {"ends_of_rows", py_ends_of_rows, METH_VARARGS, "Find the ends of every row; see table_t."},
    {"count_in_bins", py_count_in_bins, METH_VARARGS, "Add to the counts; returns their exponent, and the number of zeros."},
    {"count_between", py_count_between, METH_VARARGS, "Add to the counts of values between two ends."},
    {"count_outside", py_count_outside, METH_VARARGS, "Count the finite values outside two ends."},
    {"summarise", py_summarise, METH_VARARGS, "Extremes, sums and counts of the finite and other values."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kernel", "Single passes over floats; see compiled.py.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_kernel(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
