/* What kernel.c does with vectors of x86-64 processors, for GCC and clang: the same digits as its plain C.
 *
 * Compilers vectorise add_rows too, but take several vectors at once, and then keep lanes on the stack. A product of two
 * floats is exact in double, so x * y + total has one rounding, fused or not.
 */

#ifndef SGSDUMP_SUMS_VECTORS_H
#define SGSDUMP_SUMS_VECTORS_H

#include <cpuid.h>
#include <immintrin.h>

#define FOR_AVX2 __attribute__((target("avx2,fma,f16c")))
#define FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define PAIR 2 /* rows at once; more of them are more streams from memory than the processor foresees */

/* Adds full rows to the lanes. A cache line of each side is asked for while one is used, so many bytes ahead. */
#define ADD_ROWS(name, target, width, vector, load, widened, store, sub, mul, add, fused, absolute)                    \
    target static void name(const char *a, const char *b, size_t rows, lanes_t lanes, size_t a_ahead, size_t b_ahead)  \
    {                                                                                                                  \
        while (rows) {                                                                                                 \
            const size_t step = rows < PAIR ? 1 : PAIR;                                                                \
            for (size_t i = 0; i < LANES; i += width) {                                                                \
                vector aa = load(lanes[0] + i), bb = load(lanes[1] + i), ab = load(lanes[2] + i),                      \
                       dd = load(lanes[3] + i), d1 = load(lanes[4] + i), b1 = load(lanes[5] + i);                      \
                const char *x_at = a + i * sizeof(float), *y_at = b + i * sizeof(float);                               \
                PREFETCH(a + a_ahead + i * step * sizeof(float));                                                      \
                PREFETCH(b + b_ahead + i * step * sizeof(float));                                                      \
                for (size_t row = 0; row < step; row++, x_at += ROW_BYTES, y_at += ROW_BYTES) {                        \
                    vector x = widened(x_at), y = widened(y_at), d = sub(x, y);                                        \
                    aa = fused(x, x, aa);                                                                              \
                    bb = fused(y, y, bb);                                                                              \
                    ab = fused(x, y, ab);                                                                              \
                    dd = add(dd, mul(d, d));                                                                           \
                    d1 = add(d1, absolute(d));                                                                         \
                    b1 = add(b1, absolute(y));                                                                         \
                }                                                                                                      \
                store(lanes[0] + i, aa);                                                                               \
                store(lanes[1] + i, bb);                                                                               \
                store(lanes[2] + i, ab);                                                                               \
                store(lanes[3] + i, dd);                                                                               \
                store(lanes[4] + i, d1);                                                                               \
                store(lanes[5] + i, b1);                                                                               \
            }                                                                                                          \
            rows -= step;                                                                                              \
            a += step * ROW_BYTES;                                                                                     \
            b += step * ROW_BYTES;                                                                                     \
        }                                                                                                              \
    }

#define WIDENED_4(address) _mm256_cvtps_pd(_mm_loadu_ps((const float *)(address)))
#define WIDENED_8(address) _mm512_cvtps_pd(_mm256_loadu_ps((const float *)(address)))
#define ABSOLUTE_4(value) _mm256_andnot_pd(_mm256_set1_pd(-0.0), value)
#define ABSOLUTE_8(value) _mm512_andnot_pd(_mm512_set1_pd(-0.0), value)

ADD_ROWS(add_rows_avx2, FOR_AVX2, 4, __m256d, _mm256_loadu_pd, WIDENED_4, _mm256_storeu_pd, _mm256_sub_pd,
         _mm256_mul_pd, _mm256_add_pd, _mm256_fmadd_pd, ABSOLUTE_4)
ADD_ROWS(add_rows_avx512, FOR_AVX512, 8, __m512d, _mm512_loadu_pd, WIDENED_8, _mm512_storeu_pd, _mm512_sub_pd,
         _mm512_mul_pd, _mm512_add_pd, _mm512_fmadd_pd, ABSOLUTE_8)

/* Contiguous float16 as floats. */
FOR_AVX2 static void halves_avx2(const char *from, size_t size, float *to)
{
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        PREFETCH(from + i * sizeof(uint16_t) + AHEAD);
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i * sizeof(uint16_t)))));
    }
    if (i < size) {
        uint16_t last[8] = {0};
        float floats[8];
        memcpy(last, from + i * sizeof *last, (size - i) * sizeof *last);
        _mm256_storeu_ps(floats, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)last)));
        memcpy(to + i, floats, (size - i) * sizeof *floats);
    }
}

/* Eight columns of eight values each as eight rows. */
FOR_AVX2 static void transpose_8x8(const char *from, Py_ssize_t column_stride, float *to, size_t row)
{
    __m256 c[8], t[8];
    for (size_t i = 0; i < 8; i++)
        c[i] = _mm256_loadu_ps((const float *)(from + (Py_ssize_t)i * column_stride));
    for (size_t i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(c[i], c[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(c[i], c[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4) {
        c[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        c[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        c[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        c[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * row, _mm256_permute2f128_ps(c[i], c[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * row, _mm256_permute2f128_ps(c[i], c[i + 4], 0x31));
    }
}

/* Floats whose columns are contiguous, as contiguous rows. BLOCK columns fill cache lines of the rows. Of the next
 * columns, `ahead` bytes are asked for. */
FOR_AVX2 static void transpose_avx2(const char *from, Py_ssize_t column_stride, size_t rows, size_t columns, float *to,
                                    size_t ahead)
{
    const size_t item = sizeof(float), full_rows = rows / 8 * 8;
    size_t column = 0;
    for (; column + BLOCK <= columns; column += BLOCK) {
        const char *block = from + (Py_ssize_t)column * column_stride;
        for (size_t i = 0; i < BLOCK; i++) /* the processor does not foresee the next columns */
            for (size_t byte = 0; byte < ahead; byte += LINE)
                PREFETCH(block + (Py_ssize_t)(BLOCK + i) * column_stride + byte);
        for (size_t i = 0; i < BLOCK; i += 8)
            for (size_t row = 0; row < full_rows; row += 8)
                transpose_8x8(block + (Py_ssize_t)i * column_stride + row * item, column_stride,
                              to + row * columns + column + i, columns);
    }
    for (size_t row = 0; row < rows; row++)
        for (size_t i = row < full_rows ? column : 0; i < columns; i++)
            memcpy(to + row * columns + i, from + (Py_ssize_t)i * column_stride + row * item, item);
}

static int has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

#endif
