/* The sums of a pair of tensors in one pass over both: what lanes.py does with numpy, to the last bit.
 *
 * The order of every sum is that of lanes.py: a chunk of CHUNK values is seen as rows of LANES values, each lane is
 * summed row by row from 0, and the chunk's lanes are added to the totals. Nothing is contracted or reassociated
 * (setup.py says -ffp-contract=off), so vectors of any width give the same digits: a vector only takes several lanes at
 * a time. Four rows are taken at once, so that lanes stay in registers meanwhile.
 *
 * It takes addresses: the buffer protocol entered the stable ABI with Python 3.11 only. compiled.py, the one caller,
 * answers for them and holds the arrays. The GIL is released.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "float arithmetic is not done in float here; the numpy sums are used"
#endif

#define INTERFACE 1 /* compiled.py has the same number, or does not use a kernel left from another version */
#define LANES 256
#define CHUNK (1 << 15)
#define ROWS 4
#define SUMS 6
#define COUNTS 7

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static __forceinline
#endif

typedef double lanes_t[SUMS][LANES];

/* A value at any address, aligned or not. */
INLINE double at(const char *values, size_t index)
{
    float value;
    memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
}

/* `rows` rows of `width` values each, into the first `width` lanes. */
INLINE void add_rows(const char *a, const char *b, size_t rows, size_t width, lanes_t lanes)
{
    for (size_t i = 0; i < width; i++) {
        double aa = lanes[0][i], bb = lanes[1][i], ab = lanes[2][i], dd = lanes[3][i], d1 = lanes[4][i],
               b1 = lanes[5][i];
        for (size_t row = 0; row < rows; row++) {
            double x = at(a, row * LANES + i), y = at(b, row * LANES + i), d = x - y;
            aa += x * x;
            bb += y * y;
            ab += x * y;
            dd += d * d;
            d1 += fabs(d);
            b1 += fabs(y);
        }
        lanes[0][i] = aa;
        lanes[1][i] = bb;
        lanes[2][i] = ab;
        lanes[3][i] = dd;
        lanes[4][i] = d1;
        lanes[5][i] = b1;
    }
}

/* The counts of metrics/base.py, from sample_nan on. */
INLINE void count_odd(const char *a, const char *b, size_t size, int64_t *counts)
{
    for (size_t i = 0; i < size; i++) {
        double x = at(a, i), y = at(b, i);
        int x_nan = x != x, y_nan = y != y, x_inf = fabs(x) > DBL_MAX, y_inf = fabs(y) > DBL_MAX;
        counts[0] += x_nan;
        counts[1] += x_inf;
        counts[2] += y_nan;
        counts[3] += y_inf;
        counts[4] += x_inf & (x < 0);
        counts[5] += y_inf & (y < 0);
        counts[6] += (x_nan | y_nan | x_inf | y_inf) & !((x == y) | (x_nan & y_nan));
    }
}

INLINE void add_pair(const char *a, const char *b, size_t size, lanes_t totals, int64_t *counts)
{
    const size_t item = sizeof(float);
    lanes_t lanes;
    while (size) {
        size_t chunk = size < CHUNK ? size : CHUNK, rows = chunk / LANES, done = 0;
        memset(lanes, 0, sizeof lanes);
        for (; rows >= ROWS; rows -= ROWS, done += ROWS * LANES)
            add_rows(a + done * item, b + done * item, ROWS, LANES, lanes);
        for (; rows; rows--, done += LANES)
            add_rows(a + done * item, b + done * item, 1, LANES, lanes);
        add_rows(a + done * item, b + done * item, 1, chunk - done, lanes);
        double squares = 0;
        for (size_t i = 0; i < LANES; i++)
            squares += lanes[0][i] + lanes[1][i];
        if (!(squares <= DBL_MAX))
            count_odd(a, b, chunk, counts);
        for (size_t sum = 0; sum < SUMS; sum++)
            for (size_t i = 0; i < LANES; i++)
                totals[sum][i] += lanes[sum][i];
        a += chunk * item;
        b += chunk * item;
        size -= chunk;
    }
}

/* The same code for every width of vectors, the widest first. */
typedef void (*add_pair_t)(const char *, const char *, size_t, lanes_t, int64_t *);
typedef struct {
    const char *name;
    add_pair_t add_pair;
} variant_t;

#define VARIANT(function, attribute)                                                                                   \
    attribute static void function(const char *a, const char *b, size_t size, lanes_t totals, int64_t *counts)         \
    {                                                                                                                  \
        add_pair(a, b, size, totals, counts);                                                                          \
    }

VARIANT(add_pair_plain, )
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
VARIANT(add_pair_avx2, __attribute__((target("avx2"))))
VARIANT(add_pair_avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

static const variant_t plain = {"plain C", add_pair_plain};

/* The variant of this name that this processor runs, or the widest where there is no name; NULL for none. */
static const variant_t *variant(const char *name)
{
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
    static const variant_t avx512 = {"AVX-512", add_pair_avx512}, avx2 = {"AVX2", add_pair_avx2};
    __builtin_cpu_init();
    if ((!name || !strcmp(name, avx512.name)) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &avx512;
    if ((!name || !strcmp(name, avx2.name)) && __builtin_cpu_supports("avx2"))
        return &avx2;
#endif
    return !name || !strcmp(name, plain.name) ? &plain : NULL;
}

static const variant_t *used = &plain;

static PyObject *py_vectors(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    return PyUnicode_FromString(used->name);
}

static PyObject *py_use(PyObject *module, PyObject *args)
{
    const char *name;
    const variant_t *found;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:use", &name))
        return NULL;
    found = variant(name);
    if (found)
        used = found;
    return PyBool_FromLong(found != NULL);
}

static PyObject *py_add_pair(PyObject *module, PyObject *args)
{
    unsigned long long a, b, totals, counts;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKnKK:add_pair", &a, &b, &size, &totals, &counts))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    used->add_pair((const char *)(uintptr_t)a, (const char *)(uintptr_t)b, (size_t)size, (double(*)[LANES])(uintptr_t)totals,
                   (int64_t *)(uintptr_t)counts);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add_pair", py_add_pair, METH_VARARGS, "Add the sums and counts of two arrays of float32."},
    {"vectors", py_vectors, METH_NOARGS, "The vectors in use."},
    {"use", py_use, METH_VARARGS, "Use these vectors; False where this processor has none. For tests."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kernel", "The sums of a pair of tensors in one pass; see lanes.py.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_kernel(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    used = variant(NULL);
    if (PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) || PyModule_AddIntConstant(module, "LANES", LANES) ||
        PyModule_AddIntConstant(module, "CHUNK", CHUNK)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
