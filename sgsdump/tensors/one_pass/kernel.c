/* Single passes over floats: extremes of rows, as numpy computes them in compiled.py, and bin counts, as in
 * statistics.py (of tensors, and of ranges). Vectors of any width give the same result. Arguments are addresses, which
 * compiled.py, the only caller, and its callers have to check. The GIL is released.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INTERFACE 5 /* compiled.py rejects a kernel with another number, left from another version */

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

/* Compute the bins of at most BLOCK values; values outside use the extra bins. */
FOR_EVERY_WIDTH static void find_bins_between(const char *values, int32_t count, span_t span, int32_t *bins)
{
    for (int32_t i = 0; i < count; i++) {
        float read;
        double value, place;
        int32_t inside, bin;
        memcpy(&read, values + i * sizeof read, sizeof read);
        value = read;
        inside = (value >= span.low) & (value <= span.high);
        place = (value * span.half - span.origin) / span.width * span.bins;
        place = place >= 0 ? place : 0;
        place = place < span.bins ? place : span.bins - 1;
        bin = (int32_t)place;
        bins[i] = (bin & -inside) | (((int32_t)span.bins + (i & (SPARE - 1))) & (inside - 1));
    }
}

/* Add to the counts. `table`: as many counts and SPARE more, all 0. */
static void count_between(const char *values, int64_t size, span_t span, int64_t *table, int64_t *counts)
{
    int32_t bins[BLOCK];
    for (int64_t start = 0; start < size; start += BLOCK) {
        int32_t count = (int32_t)(size - start < BLOCK ? size - start : BLOCK);
        find_bins_between(values + start * sizeof(float), count, span, bins);
        for (int32_t i = 0; i < count; i++)
            table[bins[i]]++;
    }
    for (int32_t bin = 0; bin < (int32_t)span.bins; bin++)
        counts[bin] += table[bin];
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
    int64_t *table;
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
    table = PyMem_Calloc((size_t)bins + SPARE, sizeof *table);
    if (!table)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    count_between((const char *)(uintptr_t)values, size, span, table, (int64_t *)(uintptr_t)counts);
    Py_END_ALLOW_THREADS;
    PyMem_Free(table);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"ends_of_rows", py_ends_of_rows, METH_VARARGS, "Find the ends of every row; see table_t."},
    {"count_in_bins", py_count_in_bins, METH_VARARGS, "Add to the counts; returns their exponent, and the number of zeros."},
    {"count_between", py_count_between, METH_VARARGS, "Add to the counts of values between two ends."},
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
