/* The sums of convolutions in the order of the SDK's float simulator: what simulator_sums.py does, to the last bit.
 *
 * Nothing is contracted or reassociated (setup.py says -ffp-contract=off), so vectors of any width give the same bits:
 * a vector only takes several partial sums at a time.
 *
 * It takes addresses: the buffer protocol entered the stable ABI with Python 3.11 only. simulator_sums.py, the one
 * caller, answers for them and holds the arrays. The GIL is released.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "float arithmetic is not done in float here; the numpy sums are used"
#endif

#define INTERFACE 4 /* simulator_sums.py has the same number, or does not use a kernel left from another version */
#define LANES 8
#define OUTPUTS LANES /* that are computed together: their sums stay in registers */

#if __GNUC__ >= 12 && defined(__GLIBC__) && defined(__x86_64__)
#define X86
#define FOR_EVERY_WIDTH __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_WIDTH
#endif

/* The partial sums of one output; a compiler without vectors of its own gets an array. */
#if defined(__GNUC__) || defined(__clang__)
typedef float lanes_t __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
#define MULTIPLY_ADD(sum, x, w) ((sum) += (x) * (w))
#else
typedef struct {
    float at[LANES];
} lanes_t;
#define MULTIPLY_ADD(sum, x, w) \
    do { \
        int lane; \
        for (lane = 0; lane < LANES; lane++) \
            (sum).at[lane] += (x).at[lane] * (w).at[lane]; \
    } while (0)
#endif

/* bias [outputs], out [outputs][rows][columns]; each function says what x and weights are, and what a block is. */
typedef struct {
    const float *x, *weights, *bias;
    float *out;
    Py_ssize_t outputs, rows, columns, height, width, kernel_rows, kernel_columns, blocks;
    Py_ssize_t down, across, dilation_down, dilation_across;
} sums_t;

/* A convolution: x [height][width][blocks][LANES], weights [outputs / OUTPUTS][taps][blocks][OUTPUTS][LANES], both
 * filled up with zeros. One pixel of the result after another. */
FOR_EVERY_WIDTH
static void pixel_sums(const sums_t *s)
{
    const Py_ssize_t pixel = s->blocks * LANES, line = s->width * pixel;
    const Py_ssize_t part = s->kernel_rows * s->kernel_columns * s->blocks * OUTPUTS * LANES;
    Py_ssize_t first, row, column, i, j, b;
    int o, l;
    for (first = 0; first < s->outputs; first += OUTPUTS) {
        const float *own = s->weights + first / OUTPUTS * part;
        const int count = s->outputs - first < OUTPUTS ? (int)(s->outputs - first) : OUTPUTS;
        for (row = 0; row < s->rows; row++) {
            for (column = 0; column < s->columns; column++) {
                const float *start = s->x + row * s->down * line + column * s->across * pixel, *w = own;
                float *out = s->out + (first * s->rows + row) * s->columns + column;
                lanes_t sums[OUTPUTS];
                memset(sums, 0, sizeof sums);
                for (i = 0; i < s->kernel_rows; i++) {
                    for (j = 0; j < s->kernel_columns; j++) {
                        const float *x = start + i * s->dilation_down * line + j * s->dilation_across * pixel;
                        for (b = 0; b < s->blocks; b++, x += LANES, w += OUTPUTS * LANES) {
                            const lanes_t value = *(const lanes_t *)x;
                            for (o = 0; o < OUTPUTS; o++)
                                MULTIPLY_ADD(sums[o], value, *(const lanes_t *)(w + o * LANES));
                        }
                    }
                }
                for (o = 0; o < count; o++) {
                    const float *lanes = (const float *)&sums[o];
                    float total = lanes[0];
                    for (l = 1; l < LANES; l++)
                        total += lanes[l];
                    out[o * s->rows * s->columns] = total + s->bias[first + o];
                }
            }
        }
    }
}

#ifdef X86
#define PIXELS 4
typedef float two_lanes_t __attribute__((vector_size(2 * LANES * sizeof(float)), aligned(4), may_alias));

#define CHOOSE __builtin_shufflevector
#define CHOSEN(a, b, ...) CHOOSE(a, b, __VA_ARGS__)
#define BARE(...) __VA_ARGS__
#define EXCHANGE(a, b, without, with) \
    do { \
        const VECTOR before = a; \
        a = CHOSEN(before, b, BARE without); \
        b = CHOSEN(before, b, BARE with); \
    } while (0)

#define SUMS sums_avx2
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define VECTOR lanes_t
#define OF_VECTOR 1
#define IN_REGISTERS 2
#define READ(x) (*(const lanes_t *)(x))
#define EXCHANGE_1(a, b) \
    EXCHANGE(a, b, (0, 8, 2, 10, 4, 12, 6, 14), \
             (1, 9, 3, 11, 5, 13, 7, 15))
#define EXCHANGE_2(a, b) \
    EXCHANGE(a, b, (0, 1, 8, 9, 4, 5, 12, 13), \
             (2, 3, 10, 11, 6, 7, 14, 15))
#define EXCHANGE_4(a, b) \
    EXCHANGE(a, b, (0, 1, 2, 3, 8, 9, 10, 11), \
             (4, 5, 6, 7, 12, 13, 14, 15))
#include "several_pixels.h"

#define SUMS sums_avx512
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define VECTOR two_lanes_t
#define OF_VECTOR 2
#define IN_REGISTERS 4
#define READ(x) CHOOSE(*(const lanes_t *)(x), *(const lanes_t *)(x), 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7)
#define EXCHANGE_1(a, b) \
    EXCHANGE(a, b, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30), \
             (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#define EXCHANGE_2(a, b) \
    EXCHANGE(a, b, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29), \
             (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
#define EXCHANGE_4(a, b) \
    EXCHANGE(a, b, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27), \
             (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
#include "several_pixels.h"
#endif

/* The sums of several pixels at a time, by the name of the vectors; NULL: pixel by pixel. */
static void (*several_pixels)(const sums_t *);

/* Use the vectors of this name, or without a name the widest of this processor; returns false if it lacks them. */
static int use(const char *name)
{
#ifdef X86
    __builtin_cpu_init();
    if ((!name || !strcmp(name, "AVX-512")) && __builtin_cpu_supports("x86-64-v4")) {
        several_pixels = sums_avx512;
        return 1;
    }
    if ((!name || !strcmp(name, "AVX2")) && __builtin_cpu_supports("x86-64-v3")) {
        several_pixels = sums_avx2;
        return 1;
    }
#endif
    if (name && strcmp(name, "plain C"))
        return 0;
    several_pixels = NULL;
    return 1;
}

static void lane_sums(const sums_t *s)
{
#ifdef X86
    if (several_pixels && s->rows * s->columns >= PIXELS) {
        several_pixels(s);
        return;
    }
#endif
    pixel_sums(s);
}

/* A depthwise convolution: x [channels][height][width] with its pads, weights [outputs][taps]; a channel has `blocks`
 * outputs. A row of results is summed tap by tap, which adds to each result in the order of simulator_sums.py. */
FOR_EVERY_WIDTH
static void channel_sums(const sums_t *s)
{
    const Py_ssize_t taps = s->kernel_rows * s->kernel_columns;
    Py_ssize_t output, row, column, tap;
    for (output = 0; output < s->outputs; output++) {
        const float *plane = s->x + output / s->blocks * s->height * s->width, *weights = s->weights + output * taps;
        const float bias = s->bias[output];
        for (row = 0; row < s->rows; row++) {
            float *out = s->out + (output * s->rows + row) * s->columns;
            for (tap = 0; tap < taps; tap++) {
                const float *x = plane + (row * s->down + tap / s->kernel_columns * s->dilation_down) * s->width +
                                 tap % s->kernel_columns * s->dilation_across;
                const float w = weights[tap];
                if (!tap)
                    for (column = 0; column < s->columns; column++)
                        out[column] = x[column * s->across] * w;
                else if (s->across == 1)
                    for (column = 0; column < s->columns; column++)
                        out[column] += x[column] * w;
                else
                    for (column = 0; column < s->columns; column++)
                        out[column] += x[column * s->across] * w;
            }
            for (column = 0; column < s->columns; column++)
                out[column] += bias;
        }
    }
}

static PyObject *run(PyObject *args, void (*sum)(const sums_t *))
{
    unsigned long long x, weights, bias, out;
    sums_t s;
    if (!PyArg_ParseTuple(args, "KKKKnnnnnnnnnnnn", &x, &weights, &bias, &out, &s.outputs, &s.rows, &s.columns,
                          &s.height, &s.width, &s.kernel_rows, &s.kernel_columns, &s.blocks, &s.down, &s.across,
                          &s.dilation_down, &s.dilation_across))
        return NULL;
    s.x = (const float *)(uintptr_t)x;
    s.weights = (const float *)(uintptr_t)weights;
    s.bias = (const float *)(uintptr_t)bias;
    s.out = (float *)(uintptr_t)out;
    Py_BEGIN_ALLOW_THREADS;
    sum(&s);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *py_lane_sums(PyObject *module, PyObject *args)
{
    (void)module;
    return run(args, lane_sums);
}

static PyObject *py_channel_sums(PyObject *module, PyObject *args)
{
    (void)module;
    return run(args, channel_sums);
}

static PyObject *py_use(PyObject *module, PyObject *args)
{
    const char *name;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:use", &name))
        return NULL;
    return PyBool_FromLong(use(name));
}

static PyMethodDef methods[] = {
    {"lane_sums", py_lane_sums, METH_VARARGS, "The sums of a convolution; see lane_sums."},
    {"channel_sums", py_channel_sums, METH_VARARGS, "The sums of a depthwise convolution; see channel_sums."},
    {"use", py_use, METH_VARARGS, "Use vectors of this name: AVX-512, AVX2 or plain C; False if the processor lacks them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kernel", "Sums of convolutions; see simulator_sums.py.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_kernel(void)
{
    PyObject *module = PyModule_Create(&definition);
    use(NULL);
    if (module && (PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) ||
                   PyModule_AddIntConstant(module, "LANES", LANES))) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
