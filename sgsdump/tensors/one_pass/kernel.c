/* Single passes over floats: the ends of rows, as numpy finds them in extremes.py, and counts in bins, as numpy counts them
 * in value_histogram.py. Vectors of any width give the same. It takes addresses, for which compiled.py, the one caller,
 * and its callers answer. The GIL is released.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define INTERFACE 2 /* compiled.py has the same number, or does not use a kernel left from another version */

/* The widest vectors that the processor has, chosen when the library is loaded, where the system can do that; GCC knows
 * these levels from 12 on. */
#if __GNUC__ >= 12 && defined(__GLIBC__) && defined(__x86_64__)
#define FOR_EVERY_WIDTH __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_WIDTH
#endif

/* `rows` rows of `columns` values each, which lie together; their ends go to the results from `place` on. */
typedef struct {
    int64_t address, rows, columns, place;
} table_t;

/* Floats are compared as integers in the order of their values: a NaN, of either sign, lies beyond both infinities.
 * Rising with the value, from a float's bits; and back. */
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
#define TABLES 4 /* of counts, in turn: a value need not wait for the count of its like before it */

/* The bins of at most BLOCK values; returns how many are 0. */
FOR_EVERY_WIDTH static int32_t find_bins(const char *values, int32_t count, float scale, float side, int32_t *bins)
{
    int32_t zeros = 0;
    for (int32_t i = 0; i < count; i++) {
        float value, place;
        int32_t floor;
        memcpy(&value, values + i * sizeof value, sizeof value);
        zeros += value == 0;
        place = value * scale;
        place = place >= -side ? place : -side;
        place = place < side ? place : side - 1;
        floor = (int32_t)place;
        bins[i] = floor - ((float)floor > place) + (int32_t)side;
    }
    return zeros;
}

/* Add to the counts, all but zeros, whose number it returns. */
static int64_t count_in_bins(const char *values, int64_t size, float scale, int32_t side, uint32_t *tables,
                             int64_t *counts)
{
    int64_t zeros = 0;
    int32_t bins[BLOCK];
    for (int64_t start = 0; start < size; start += BLOCK) {
        int32_t count = (int32_t)(size - start < BLOCK ? size - start : BLOCK);
        zeros += find_bins(values + start * sizeof(float), count, scale, (float)side, bins);
        for (int32_t i = 0; i < count; i++)
            tables[bins[i] * TABLES + i % TABLES]++;
    }
    for (int32_t bin = 0; bin < 2 * side; bin++)
        for (int32_t i = 0; i < TABLES; i++)
            counts[bin] += tables[bin * TABLES + i];
    counts[side] -= zeros;
    return zeros;
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
    float scale;
    int side;
    uint32_t *tables;
    (void)module;
    if (!PyArg_ParseTuple(args, "KnfiK:count_in_bins", &values, &size, &scale, &side, &counts))
        return NULL;
    if (side < 1 || side > 1 << 20 || size >> 33) {
        PyErr_SetString(PyExc_ValueError, "too many bins, or more values than are counted at once");
        return NULL;
    }
    tables = PyMem_Calloc(2 * (size_t)side * TABLES, sizeof *tables);
    if (!tables)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS;
    zeros = count_in_bins((const char *)(uintptr_t)values, size, scale, side, tables, (int64_t *)(uintptr_t)counts);
    Py_END_ALLOW_THREADS;
    PyMem_Free(tables);
    return PyLong_FromLongLong(zeros);
}

static PyMethodDef methods[] = {
    {"ends_of_rows", py_ends_of_rows, METH_VARARGS, "Find the ends of every row; see table_t."},
    {"count_in_bins", py_count_in_bins, METH_VARARGS, "Add to the counts; returns how many values are 0."},
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
