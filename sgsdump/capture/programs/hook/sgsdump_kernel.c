/* The statistics of a tensor's elements in one pass: least, most, sum and sum of squares. And a checksum of its memory.
 *
 * sgsdump_torch_statistics.py and sgsdump_operators.c, the callers, answer for the address and hold the tensor;
 * without this, where it was not built or does not load, torch does the same in more passes. It lies beside the hook and
 * is of the stable ABI, so that the program's own Python loads it. The GIL is released.
 *
 * A chunk is summed in LANES sums of double, which are added to the total of their block in their order, and the blocks
 * in theirs. Nothing is contracted or reassociated (setup.py says -ffp-contract=off): vectors of any width and any number
 * of threads give the same digits.
 *
 * The threads are those that the program's library computes with, by the function of OpenMP that hands them work: while
 * the hook's Python runs they wait for it anyway, and a pool of our own would only stand in their way.
 */

#include "sgsdump_kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES 32
#define CHUNK (1 << 13)
#define BLOCK (1 << 15) /* elements */
#define MOST_THREADS 1024
#define INTERFACE 3 /* raised when a function's arguments change, as in sgsdump_torch_statistics.py */
#define AHEAD 1024 /* elements, to be on their way from memory before their turn */

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define INLINE static __forceinline
#define PREFETCH(address) ((void)0)
#endif

INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The exponent is moved by a product, which is exact and makes a normal number of a subnormal one. */
INLINE float half(uint16_t bits)
{
    uint32_t rest = (uint32_t)(bits & 0x7fff) << 13;
    float finite = float_of(rest) * 0x1p112f;
    uint32_t found;
    memcpy(&found, &finite, sizeof found);
    if (rest >= 0x0f800000u)
        found = rest | 0x7f800000u;
    return float_of(found | (uint32_t)(bits & 0x8000) << 16);
}

INLINE void add_chunk(const float *values, size_t size, figures_t *figures)
{
    double sums[LANES] = {0}, squares[LANES] = {0};
    float least[LANES], most[LANES];
    size_t whole = size / LANES * LANES;
    for (size_t i = 0; i < LANES; i++)
        least[i] = INFINITY, most[i] = -INFINITY;
    for (size_t start = 0; start < whole; start += LANES) {
        PREFETCH(values + start + AHEAD);
        PREFETCH(values + start + AHEAD + LANES / 2);
        for (size_t i = 0; i < LANES; i++) {
            float value = values[start + i];
            sums[i] += value;
            squares[i] += (double)value * value;
            least[i] = value < least[i] ? value : least[i];
            most[i] = value > most[i] ? value : most[i];
        }
    }
    for (size_t i = 0; i < size - whole; i++) {
        float value = values[whole + i];
        sums[i] += value;
        squares[i] += (double)value * value;
        least[i] = value < least[i] ? value : least[i];
        most[i] = value > most[i] ? value : most[i];
    }
    for (size_t i = 0; i < LANES; i++) {
        figures->sum += sums[i];
        figures->squares += squares[i];
        figures->least = least[i] < figures->least ? least[i] : figures->least;
        figures->most = most[i] > figures->most ? most[i] : figures->most;
    }
}

/* A square is NaN of NaN only, for the sum of an infinity and any square is infinite. */
INLINE figures_t figures_of(const char *data, size_t count, int kind)
{
    figures_t figures = {0, 0, INFINITY, -INFINITY};
    float scratch[CHUNK];
    for (size_t start = 0; start < count; start += CHUNK) {
        size_t size = count - start < CHUNK ? count - start : CHUNK;
        const float *values = scratch;
        if (kind == FLOAT32)
            values = (const float *)data + start;
        else
            for (size_t i = 0; i < size; i++) {
                uint16_t bits = ((const uint16_t *)data)[start + i];
                scratch[i] = kind == FLOAT16 ? half(bits) : float_of((uint32_t)bits << 16);
            }
        add_chunk(values, size, &figures);
    }
    if (isnan(figures.squares))
        figures.least = figures.most = NAN;
    return figures;
}

/* Each of WORDS classes of words (of four bytes) has a sum. Every step can be undone, so that no word changes alone
 * without the sum of its class; the shift brings what changes in a word's upper bits, signs and exponents, to the lower
 * ones, so that two changes cancel by rare chance only. */
#define WORDS 64
#define FACTOR 0x9e3779b1u

INLINE void add_words(uint32_t *sums, const char *data)
{
    uint32_t words[WORDS];
    memcpy(words, data, sizeof words);
    for (size_t i = 0; i < WORDS; i++) {
        uint32_t mixed = (sums[i] ^ words[i]) * FACTOR;
        sums[i] = mixed ^ mixed >> 15;
    }
}

INLINE void checksum_of(const char *data, size_t size, uint32_t *sums)
{
    size_t whole = size / (WORDS * 4) * (WORDS * 4);
    char rest[WORDS * 4] = {0};
    for (size_t start = 0; start < whole; start += WORDS * 4) {
        for (size_t line = 0; line < WORDS * 4; line += 64)
            PREFETCH(data + start + AHEAD * 4 + line);
        add_words(sums, data + start);
    }
    memcpy(rest, data + whole, size - whole);
    add_words(sums, rest);
}

/* As checksum_of, of LINES stretches of WORDS words, evenly over the memory. */
#define LINES 16

static void sample_of(const char *data, size_t size, uint32_t *sums)
{
    size_t step = (size - WORDS * 4) / (LINES - 1) / 4 * 4;
    for (size_t line = 0; line < LINES; line++)
        PREFETCH(data + line * step);
    for (size_t line = 0; line < LINES; line++)
        add_words(sums, data + line * step);
}

typedef figures_t (*function_t)(const char *, size_t, int);
typedef void (*checksum_t)(const char *, size_t, uint32_t *);

/* The same code for every width of vectors; the types apart, so that no loop asks for them. */
#define VARIANT(name, attribute)                                                                                       \
    attribute static figures_t figures_##name(const char *data, size_t count, int kind)                               \
    {                                                                                                                  \
        switch (kind) {                                                                                                \
        case FLOAT16: return figures_of(data, count, FLOAT16);                                                         \
        case BFLOAT16: return figures_of(data, count, BFLOAT16);                                                       \
        default: return figures_of(data, count, FLOAT32);                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    attribute static void checksum_##name(const char *data, size_t size, uint32_t *sums)                              \
    {                                                                                                                  \
        checksum_of(data, size, sums);                                                                                 \
    }

VARIANT(plain, )
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

static function_t used = figures_plain;
static checksum_t used_checksum = checksum_plain;

/* Those of the widest vectors that this processor has. */
static void use_the_widest(void)
{
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        used = figures_avx512, used_checksum = checksum_avx512;
    else if (__builtin_cpu_supports("avx2"))
        used = figures_avx2, used_checksum = checksum_avx2;
#endif
}

typedef struct {
    const char *data;
    size_t count, blocks, next;
    int kind;
    figures_t *parts;
} job_t;

static void take_block(job_t *job, size_t block)
{
    size_t start = block * BLOCK, size = job->count - start < BLOCK ? job->count - start : BLOCK;
    job->parts[block] = used(job->data + start * (job->kind == FLOAT32 ? 4 : 2), size, job->kind);
}

static void take_blocks(void *given)
{
    job_t *job = given;
#if defined(__GNUC__) || defined(__clang__)
    for (size_t block; (block = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->blocks;)
        take_block(job, block);
#else
    for (; job->next < job->blocks; job->next++)
        take_block(job, job->next);
#endif
}

typedef void (*parallel_t)(void (*)(void *), void *, unsigned, unsigned); /* GOMP_parallel */

/* Of all elements; 0 where there is no memory for what is known of the blocks. */
static int figures_of_all(const char *data, size_t count, int kind, parallel_t parallel, unsigned threads,
                          figures_t *figures)
{
    figures_t few[16];
    job_t job = {data, count, (count + BLOCK - 1) / BLOCK, 0, kind, few};
    if (job.blocks > sizeof few / sizeof *few && !(job.parts = malloc(job.blocks * sizeof *job.parts)))
        return 0;
    if (parallel && threads > 1 && job.blocks > 1)
        parallel(take_blocks, &job, threads < job.blocks ? threads : (unsigned)job.blocks, 0);
    else
        take_blocks(&job);
    *figures = job.parts[0];
    for (size_t i = 1; i < job.blocks; i++) {
        const figures_t *part = job.parts + i;
        figures->sum += part->sum;
        figures->squares += part->squares;
        figures->least = part->least < figures->least ? part->least : figures->least;
        figures->most = part->most > figures->most ? part->most : figures->most;
    }
    if (isnan(figures->squares))
        figures->least = figures->most = NAN;
    if (job.parts != few)
        free(job.parts);
    return 1;
}

int sums_of_elements(const char *data, size_t count, int kind, figures_t *figures)
{
    return figures_of_all(data, count, kind, NULL, 1, figures);
}

#define SMALL 256        /* bytes: a tensor of so many is its own checksum */
#define WHOLE (1 << 13)  /* bytes: more are sampled */

PyObject *sample_of_memory(const char *data, size_t size)
{
    uint32_t sums[WORDS] = {0};
    if (size <= SMALL)
        return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
    if (size <= WHOLE)
        used_checksum(data, size, sums);
    else
        sample_of(data, size, sums);
    return PyBytes_FromStringAndSize((const char *)sums, sizeof sums);
}

static PyObject *py_statistics(PyObject *module, PyObject *args)
{
    unsigned long long address, parallel = 0;
    Py_ssize_t count;
    int kind, threads = 1, done;
    figures_t figures;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kni|Ki:statistics", &address, &count, &kind, &parallel, &threads))
        return NULL;
    if (count < 1 || kind < 0 || kind >= KINDS || threads < 1 || threads > MOST_THREADS) {
        PyErr_SetString(PyExc_ValueError, "no elements, of no type known here, or by no such number of threads");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    done = figures_of_all((const char *)(uintptr_t)address, (size_t)count, kind, (parallel_t)(uintptr_t)parallel,
                          (unsigned)threads, &figures);
    Py_END_ALLOW_THREADS;
    if (!done)
        return PyErr_NoMemory();
    return Py_BuildValue("dddd", (double)figures.least, (double)figures.most, figures.sum, figures.squares);
}

static PyObject *py_checksum(PyObject *module, PyObject *args)
{
    unsigned long long address;
    Py_ssize_t size;
    uint32_t sums[WORDS] = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "Kn:checksum", &address, &size))
        return NULL;
    if (size < 1) {
        PyErr_SetString(PyExc_ValueError, "no bytes");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    used_checksum((const char *)(uintptr_t)address, (size_t)size, sums);
    Py_END_ALLOW_THREADS;
    return PyBytes_FromStringAndSize((const char *)sums, sizeof sums);
}

static PyObject *py_sample(PyObject *module, PyObject *args)
{
    unsigned long long address;
    Py_ssize_t size;
    uint32_t sums[WORDS] = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "Kn:sample", &address, &size))
        return NULL;
    if (size < WORDS * 4) {
        PyErr_SetString(PyExc_ValueError, "fewer bytes than a sample takes");
        return NULL;
    }
    sample_of((const char *)(uintptr_t)address, (size_t)size, sums);
    return PyBytes_FromStringAndSize((const char *)sums, sizeof sums);
}

static PyMethodDef methods[] = {
    {"checksum", py_checksum, METH_VARARGS, "256 bytes that tell other bytes from these (address, size)."},
    {"sample", py_sample, METH_VARARGS, "As checksum, of some stretches of memory from all over it (address, size)."},
    {"statistics", py_statistics, METH_VARARGS, "(least, most, sum, sum of squares) of (address, count, kind[, GOMP_parallel, threads])."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "sgsdump_kernel", "Statistics and checksum of a tensor in one pass.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_sgsdump_kernel(void)
{
    PyObject *module = PyModule_Create(&definition);
    use_the_widest();
    if (module && (PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) || add_ordinary(module))) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
