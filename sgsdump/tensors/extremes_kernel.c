/* The lowest and the highest value of every row of some tables of floats: what numpy does in extremes.py does.
 *
 * Floats are compared as integers in the order of their values: one pass finds both ends, and a NaN, of either sign, lies
 * beyond both infinities. Vectors of any width give the same. It takes addresses, for which extremes.py, the one caller,
 * answers. The GIL is released.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define INTERFACE 1 /* extremes.py has the same number, or does not use a kernel left from another version */

/* The widest vectors that the processor has, chosen when the library is loaded, where the system can do that. */
#if defined(__GNUC__) && defined(__GLIBC__) && defined(__x86_64__)
#define FOR_EVERY_WIDTH __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_WIDTH
#endif

/* `rows` rows of `columns` values each, which lie together; their ends go to the results from `place` on. */
typedef struct {
    int64_t address, rows, columns, place;
} table_t;

/* Rising with the value, from a float's bits; and back. */
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

static PyMethodDef methods[] = {
    {"ends_of_rows", py_ends_of_rows, METH_VARARGS, "Find the ends of every row; see table_t."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "extremes_kernel", "The lowest and highest value of every row; see extremes.py.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_extremes_kernel(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
