/* The sums of a pair of tensors in one pass over both, equal to those of by_numpy.py in every bit.
 *
 * tiles.py defines the order of every sum: a chunk is seen as rows of LANES values, each lane is summed row by row from
 * 0, and the chunk's lanes are added to the totals. Nothing is contracted or reassociated (setup.py sets
 * -ffp-contract=off), so vectors of any width give the same digits: a vector only takes several lanes at a time. Several
 * rows are taken at once, so that lanes stay in registers meanwhile. vectors.h has this for AVX2 and AVX-512.
 *
 * All supported types represent float32 values. Values of another type, or not contiguous, are packed into a scratch of
 * floats first: a piece of a row or a stripe of rows at a time, which is summed while a cache holds it. A side that is a
 * view of a mapped file is read from the file by tiles instead. This takes no more time than mapping its pages, less if
 * the system's file cache holds the file in small pieces, and two threads need not release any pages.
 *
 * The functions take addresses, because the stable ABI has the buffer protocol only from Python 3.11 on. summation.py,
 * the only caller, checks the addresses and holds the arrays. The GIL is released.
 */

#define PY_SSIZE_T_CLEAN
#define _FILE_OFFSET_BITS 64
#include <Python.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <unistd.h>
#endif

#if FLT_EVAL_METHOD != 0
#error "float arithmetic is not done in float here; the numpy sums are used"
#endif

#define INTERFACE 6 /* summation.py has the same number, and does not use a kernel of another version */
#define LANES 256
#define CHUNK (1 << 15)
#define ROWS 4
#define SUMS 6
#define COUNTS 7
#define AHEAD 4096 /* bytes, to be on their way from memory before their turn */
#define LINE 64
#define FORESEEN 512 /* bytes of a column, after which the processor foresees the rest */
#define BLOCK 16 /* columns packed at a time: a cache line of floats */
#define SHORT 16 /* values of a channel that lie together: less are taken by the period of the channels */
#define PERIOD 8192 /* values after which the first channel comes again, at most */
#define LEAST 32 /* of them that are taken at once */
#define MEDIAN 64 /* channels of which the median is that of all, at least */
#define TURNS 4  /* of the channels that are taken at once */

#if defined(__GNUC__) || defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define INLINE static __forceinline
#define PREFETCH(address) ((void)0)
#endif
#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define X86
#endif

#define ROW_BYTES (LANES * sizeof(float))
#define STRIPE 16 /* rows: a cache line of a column of floats */
#define WIDE 128 /* columns, at least, of a stripe */
#define PIECE (4 * LANES) /* values of both sides and the lanes stay in the first-level cache */

typedef double lanes_t[SUMS][LANES];
typedef enum { PLAIN, WITH_AVX2, WITH_AVX512 } level_t;

#ifdef X86
#include "vectors.h"
#endif

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

/* `rows` full rows. */
INLINE void add_full_rows(const char *a, const char *b, size_t rows, lanes_t lanes, size_t a_ahead, size_t b_ahead,
                          level_t level)
{
#ifdef X86
    if (level == WITH_AVX512) {
        add_rows_avx512(a, b, rows, lanes, a_ahead, b_ahead);
        return;
    }
    if (level == WITH_AVX2) {
        add_rows_avx2(a, b, rows, lanes, a_ahead, b_ahead);
        return;
    }
#endif
    (void)level, (void)a_ahead, (void)b_ahead;
    for (; rows >= ROWS; rows -= ROWS, a += ROWS * ROW_BYTES, b += ROWS * ROW_BYTES)
        add_rows(a, b, ROWS, LANES, lanes);
    for (; rows; rows--, a += ROW_BYTES, b += ROW_BYTES)
        add_rows(a, b, 1, LANES, lanes);
}

INLINE uint32_t bits_at(const char *values, size_t index)
{
    uint32_t bits;
    memcpy(&bits, values + index * sizeof bits, sizeof bits);
    return bits;
}

/* The counts of metrics/base.py, from sample_nan on. */
INLINE void count_odd(const char *a, const char *b, size_t size, int64_t *counts)
{
    const uint32_t infinity = 0x7f800000u, minus = 0xff800000u;
    int32_t a_nan = 0, a_inf = 0, b_nan = 0, b_inf = 0, a_minus = 0, b_minus = 0, apart = 0;
    for (size_t i = 0; i < size; i++) {
        uint32_t x = bits_at(a, i), y = bits_at(b, i), p = x & 0x7fffffffu, q = y & 0x7fffffffu;
        a_nan += p > infinity;
        a_inf += p == infinity;
        b_nan += q > infinity;
        b_inf += q == infinity;
        a_minus += x == minus;
        b_minus += y == minus;
        apart += ((p >= infinity) | (q >= infinity)) & (x != y) & !((p > infinity) & (q > infinity));
    }
    const int32_t found[] = {a_nan, a_inf, b_nan, b_inf, a_minus, b_minus, apart};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        counts[i] += found[i];
}

/* The channels of a pair: value i of the row belongs to channel (first + i) / inner % count. In a table of several rows
 * these are its columns (BY_COLUMNS) or its rows (BY_ROWS) in place of `inner`. The sums of |a-b| and of |b| of each are
 * added in float within a chunk and in double from chunk to chunk: good for six digits. Of `skip` turns, or stretches of a
 * channel, one is taken.
 */
enum { BY_COLUMNS = -1, BY_ROWS = -2 };

typedef struct {
    Py_ssize_t inner, count, skip;
    long long first;
    double *errors, *values;
} channels_t;

/* Rows of contiguous floats, so many bytes from one to the next. */
typedef struct {
    const char *data;
    Py_ssize_t stride;
} rows_t;

INLINE float float_at(const char *values, size_t index)
{
    float value;
    memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
}

/* Values of one channel. */
INLINE void add_run(const char *a, const char *b, size_t size, size_t skip, double *error, double *value)
{
    float d[LEAST] = {0}, s[LEAST] = {0};
    size_t i = 0;
    for (; i + LEAST <= size; i += skip * LEAST)
        for (size_t j = 0; j < LEAST; j++) {
            float x = float_at(a, i + j), y = float_at(b, i + j);
            d[j] += fabsf(x - y);
            s[j] += fabsf(y);
        }
    for (size_t j = 0; i < size; i++, j++) {
        float x = float_at(a, i), y = float_at(b, i);
        d[j] += fabsf(x - y);
        s[j] += fabsf(y);
    }
    for (size_t half = LEAST / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++) {
            d[j] += d[j + half];
            s[j] += s[j + half];
        }
    *error += d[0];
    *value += s[0];
}

/* Values of channels that take turns, from the one of `start` on. */
INLINE void add_turns(const char *a, const char *b, size_t size, size_t start, size_t inner, size_t count,
                      size_t skip, double *errors, double *values)
{
    float d[PERIOD], s[PERIOD];
    size_t turn = inner * count, period = turn < LEAST ? turn * ((LEAST + turn - 1) / turn) : turn;
    size_t at_turn = start % turn, i = 0;
    memset(d, 0, period * sizeof *d);
    memset(s, 0, period * sizeof *s);
    for (; i < size && at_turn; i++) {
        float x = float_at(a, i), y = float_at(b, i);
        d[at_turn] += fabsf(x - y);
        s[at_turn] += fabsf(y);
        at_turn = at_turn + 1 == turn ? 0 : at_turn + 1;
    }
    const size_t step = skip * period;
    for (; i + (TURNS - 1) * step + period <= size; i += TURNS * step)
        for (size_t j = 0; j < period; j++) {
            float error = d[j], value = s[j];
            for (size_t turns = 0; turns < TURNS; turns++) {
                float x = float_at(a, i + turns * step + j), y = float_at(b, i + turns * step + j);
                error += fabsf(x - y);
                value += fabsf(y);
            }
            d[j] = error;
            s[j] = value;
        }
    for (; i + period <= size; i += step)
        for (size_t j = 0; j < period; j++) {
            float x = float_at(a, i + j), y = float_at(b, i + j);
            d[j] += fabsf(x - y);
            s[j] += fabsf(y);
        }
    for (size_t j = 0; i < size; i++, j++) {
        float x = float_at(a, i), y = float_at(b, i);
        d[j] += fabsf(x - y);
        s[j] += fabsf(y);
    }
    for (size_t first = 0; inner == 1 && first < period; first += count)
        for (size_t channel = 0; channel < count; channel++) {
            errors[channel] += d[first + channel];
            values[channel] += s[first + channel];
        }
    for (size_t j = 0, left = inner, channel = 0; inner > 1 && j < period; j++) {
        errors[channel] += d[j];
        values[channel] += s[j];
        if (!--left) {
            left = inner;
            channel = channel + 1 == count ? 0 : channel + 1;
        }
    }
}

/* Values of channels that are columns, in rows that may be apart. */
INLINE void add_columns(rows_t a, rows_t b, size_t rows, size_t columns, size_t skip, double *errors, double *values)
{
    float d[PERIOD], s[PERIOD];
    memset(d, 0, columns * sizeof *d);
    memset(s, 0, columns * sizeof *s);
    for (size_t row = 0; row < rows; row += skip)
        for (size_t j = 0; j < columns; j++) {
            float x = float_at(a.data + (Py_ssize_t)row * a.stride, j);
            float y = float_at(b.data + (Py_ssize_t)row * b.stride, j);
            d[j] += fabsf(x - y);
            s[j] += fabsf(y);
        }
    for (size_t j = 0; j < columns; j++) {
        errors[j] += d[j];
        values[j] += s[j];
    }
}

INLINE void add_channels(rows_t a_rows, rows_t b_rows, size_t rows, size_t columns, Py_ssize_t row, Py_ssize_t column,
                         channels_t to)
{
    const char *a = a_rows.data, *b = b_rows.data;
    const size_t count = (size_t)to.count, skip = (size_t)to.skip;
    if (to.inner == BY_ROWS)
        for (size_t i = 0; i < rows; i++)
            add_run(a + (Py_ssize_t)i * a_rows.stride, b + (Py_ssize_t)i * b_rows.stride, columns, skip,
                    to.errors + row + i, to.values + row + i);
    else if (to.inner == BY_COLUMNS && columns >= LEAST)
        add_columns(a_rows, b_rows, rows, columns, skip, to.errors + column, to.values + column);
    else if (to.inner == BY_COLUMNS)
        add_turns(a, b, rows * columns, 0, 1, columns, skip, to.errors + column, to.values + column);
    else if (to.inner < SHORT)
        add_turns(a, b, columns, (size_t)(to.first + column), (size_t)to.inner, count, skip, to.errors,
                  to.values);
    else {
        size_t inner = (size_t)to.inner, start = (size_t)(to.first + column);
        size_t channel = start / inner % count, left = inner - start % inner;
        for (size_t i = 0; i < columns; i += left, left = inner) {
            size_t size = left < columns - i ? left : columns - i;
            add_run(a + i * sizeof(float), b + i * sizeof(float), size, skip, to.errors + channel, to.values + channel);
            channel = channel + 1 == count ? 0 : channel + 1;
        }
    }
}

/* Of `count` numbers the one that has `rank` smaller ones before it when they are sorted; they change places. */
static double of_rank(double *numbers, Py_ssize_t count, Py_ssize_t rank)
{
    Py_ssize_t low = 0, high = count - 1;
    while (low < high) {
        double middle = numbers[low + (high - low) / 2];
        Py_ssize_t i = low, j = high;
        while (i <= j) {
            while (numbers[i] < middle)
                i++;
            while (numbers[j] > middle)
                j--;
            if (i <= j) {
                double number = numbers[i];
                numbers[i++] = numbers[j];
                numbers[j--] = number;
            }
        }
        if (rank <= j)
            high = j;
        else if (rank >= i)
            low = i;
        else
            break;
    }
    return numbers[rank];
}

/* What the sums of channels say: how many live, how many of these are lost, the worst and its ratio. */
typedef struct {
    Py_ssize_t live, lost, worst;
    double ratio;
} judged_t;

typedef struct {
    double floor, lost, median, common;
} limits_t;

/* Of at most twice MEDIAN of them, evenly chosen. */
static double median_of(const double *numbers, Py_ssize_t count)
{
    double chosen[2 * MEDIAN];
    Py_ssize_t every = count / MEDIAN > 1 ? count / MEDIAN : 1, number = 0;
    for (Py_ssize_t i = 0; i < count; i += every)
        chosen[number++] = numbers[i];
    return of_rank(chosen, number, number / 2);
}

static judged_t judge(const double *errors, const double *values, Py_ssize_t count, limits_t limits)
{
    double sum = 0, most = 0, common = limits.common, floor, least = 0;
    Py_ssize_t beyond = 0;
    judged_t judged = {0, 0, -1, 0};
    Py_ssize_t least_at = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        sum += errors[i] + values[i];
        most = values[i] > most ? values[i] : most;
    }
    if (!(sum <= DBL_MAX))
        return judged;
    floor = limits.floor * most;
    double median = limits.median * median_of(errors, count);
    common = median > common ? median : common;
    for (Py_ssize_t i = 0; i < count; i++) {
        int is_live = values[i] > floor, is_lost = is_live & (errors[i] >= limits.lost * values[i]);
        judged.live += is_live;
        judged.lost += is_lost;
        beyond += is_lost & (errors[i] > common);
    }
    int are_few = 2 * judged.lost < judged.live;
    if (are_few)
        judged.lost = beyond;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!(values[i] > floor))
            continue;
        if ((!are_few || errors[i] > common) && errors[i] / values[i] >= judged.ratio) {
            judged.ratio = errors[i] / values[i];
            judged.worst = i;
        }
        if (judged.worst < 0 && (least_at < 0 || errors[i] / values[i] < least)) {
            least = errors[i] / values[i];
            least_at = i;
        }
    }
    if (judged.worst < 0) {
        judged.ratio = least;
        judged.worst = least_at;
    }
    return judged;
}

/* One side of a pair: rows and columns at strides in bytes, and what integers mean: (value - zero) * scale. Where there
 * is a file (not -1), the side is one row without gaps, at `offset` of it.
 *
 * What stands at `places`, ascending, is picked up; they are counted from `first` values before the row.
 */
enum { FLOAT32, FLOAT16, BFLOAT16, INT8, UINT8, INT16, UINT16 };

typedef struct {
    const char *data;
    int kind;
    Py_ssize_t row_stride, column_stride;
    float scale;
    int zero, file;
    long long offset;
    const int64_t *places;
    Py_ssize_t wanted;
    float *picked;
    long long first;
} side_t;

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

/* A side from a row and column on. */
INLINE side_t side_at(side_t side, size_t row, size_t column)
{
    side.data += (Py_ssize_t)row * side.row_stride + (Py_ssize_t)column * side.column_stride;
    return side;
}

/* The next block of columns of a side whose columns lie together: the processor does not foresee them. */
INLINE void fetch_columns(side_t side, size_t bytes, size_t start)
{
    for (size_t i = 0; i < BLOCK; i++)
        for (size_t byte = 0; byte < bytes; byte += LINE)
            PREFETCH(side.data + (Py_ssize_t)(start + i) * side.column_stride + byte);
}

/* The values in a row of memory. */
#define PACK_ROW(name, type, means)                                                                                    \
    INLINE void name##_row(side_t side, const char *from, size_t size, float *to)                                      \
    {                                                                                                                  \
        (void)side;                                                                                                    \
        for (; size >= LINE; size -= LINE, from += LINE * sizeof(type), to += LINE) {                                  \
            for (size_t byte = 0; byte < LINE * sizeof(type); byte += LINE)                                            \
                PREFETCH(from + AHEAD + byte);                                                                         \
            for (size_t i = 0; i < LINE; i++) {                                                                        \
                type value;                                                                                            \
                memcpy(&value, from + i * sizeof(type), sizeof(type));                                                 \
                to[i] = means;                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        for (size_t i = 0; i < size; i++) {                                                                            \
            type value;                                                                                                \
            memcpy(&value, from + i * sizeof(type), sizeof(type));                                                     \
            to[i] = means;                                                                                             \
        }                                                                                                              \
    }

#define PACK(name, type, means)                                                                                        \
    PACK_ROW(name, type, means)                                                                                        \
    INLINE void name(side_t side, size_t rows, size_t columns, float *out)                                             \
    {                                                                                                                  \
        const int together = side.column_stride == sizeof(type);                                                       \
        for (size_t row = 0; together && row < rows; row++)                                                            \
            name##_row(side, side.data + (Py_ssize_t)row * side.row_stride, columns, out + row * columns);             \
        for (size_t start = 0; !together && start < columns; start += BLOCK) {                                         \
            size_t left = columns - start, width = left < BLOCK ? left : BLOCK;                                        \
            if (side.row_stride == sizeof(type))                                                                       \
                fetch_columns(side, rows * sizeof(type), start + BLOCK);                                               \
            for (size_t row = 0; row < rows; row++) {                                                                  \
                const char *from = side.data + (Py_ssize_t)row * side.row_stride +                                     \
                                   (Py_ssize_t)start * side.column_stride;                                             \
                float *to = out + row * columns + start;                                                               \
                for (size_t i = 0; i < width; i++) {                                                                   \
                    type value;                                                                                        \
                    memcpy(&value, from + (Py_ssize_t)i * side.column_stride, sizeof(type));                           \
                    to[i] = means;                                                                                     \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

PACK(pack_float32, float, value)
PACK(pack_float16, uint16_t, half(value))
PACK(pack_bfloat16, uint16_t, float_of((uint32_t)value << 16))
PACK(pack_int8, int8_t, (float)(value - side.zero) * side.scale)
PACK(pack_uint8, uint8_t, (float)(value - side.zero) * side.scale)
PACK(pack_int16, int16_t, (float)(value - side.zero) * side.scale)
PACK(pack_uint16, uint16_t, (float)(value - side.zero) * side.scale)

/* Packs a tile, or a stripe of it; `below` rows of the tile come after it. */
INLINE void pack(side_t side, size_t rows, size_t columns, float *out, size_t below, level_t level)
{
#ifdef X86
    if (level != PLAIN && side.kind == FLOAT16 && rows == 1 && side.column_stride == sizeof(uint16_t)) {
        halves_avx2(side.data, columns, out);
        return;
    }
    if (level != PLAIN && side.kind == FLOAT32 && side.row_stride == sizeof(float)) {
        const size_t bytes = (rows + below) * sizeof(float);
        transpose_avx2(side.data, side.column_stride, rows, columns, out, bytes < FORESEEN ? bytes : FORESEEN);
        return;
    }
#endif
    (void)level;
    switch (side.kind) {
    case FLOAT32: pack_float32(side, rows, columns, out); break;
    case FLOAT16: pack_float16(side, rows, columns, out); break;
    case BFLOAT16: pack_bfloat16(side, rows, columns, out); break;
    case INT8: pack_int8(side, rows, columns, out); break;
    case UINT8: pack_uint8(side, rows, columns, out); break;
    case INT16: pack_int16(side, rows, columns, out); break;
    case UINT16: pack_uint16(side, rows, columns, out); break;
    }
}

/* Values of two sides in rows, one after the other in the lanes; a row is full, or the rows are contiguous. */
INLINE void add_floats(rows_t x, rows_t y, size_t rows, size_t columns, size_t x_ahead, size_t y_ahead, lanes_t lanes,
                       level_t level)
{
    if (columns % LANES) {
        columns *= rows;
        rows = 1;
    }
    for (; rows; rows--, x.data += x.stride, y.data += y.stride) {
        const size_t full = columns / LANES;
        add_full_rows(x.data, y.data, full, lanes, x_ahead, y_ahead, level);
        add_rows(x.data + full * ROW_BYTES, y.data + full * ROW_BYTES, 1, columns % LANES, lanes);
    }
}

/* The values of a tile, packed by pieces of a row or by stripes of rows, which are added while a cache holds them. Each
 * of them but the last has full rows of the lanes. */
INLINE void add_packed(side_t a, side_t b, size_t rows, size_t columns, rows_t x, rows_t y, lanes_t lanes,
                       level_t level)
{
    const int pack_a = x.data != a.data, pack_b = y.data != b.data;
    const int by_stripes = columns >= WIDE && STRIPE * columns % LANES == 0;
    const size_t height = by_stripes ? STRIPE : rows, width = rows == 1 ? PIECE : columns;
    const size_t x_ahead = pack_a ? 0 : rows == 1 ? AHEAD : (size_t)x.stride;
    const size_t y_ahead = pack_b ? 0 : rows == 1 ? AHEAD : (size_t)y.stride;
    for (size_t row = 0; row < rows; row += height)
        for (size_t column = 0; column < columns; column += width) {
            const size_t high = rows - row < height ? rows - row : height;
            const size_t wide = columns - column < width ? columns - column : width;
            const rows_t from_x = {x.data + (Py_ssize_t)row * x.stride + column * sizeof(float), x.stride};
            const rows_t from_y = {y.data + (Py_ssize_t)row * y.stride + column * sizeof(float), y.stride};
            if (pack_a)
                pack(side_at(a, row, column), high, wide, (float *)from_x.data, row ? 0 : rows - high, level);
            if (pack_b)
                pack(side_at(b, row, column), high, wide, (float *)from_y.data, row ? 0 : rows - high, level);
            add_floats(from_x, from_y, high, wide, x_ahead, y_ahead, lanes, level);
        }
}

/* Where the floats of a tile are, or are going to be packed. */
INLINE rows_t floats_of(side_t side, size_t rows, size_t columns, float *out)
{
    const Py_ssize_t item = sizeof(float), width = (Py_ssize_t)columns * item;
    const int are_contiguous = rows == 1 || side.row_stride == width || columns % LANES == 0;
    if (side.kind == FLOAT32 && side.column_stride == item && are_contiguous)
        return (rows_t){side.data, rows == 1 ? width : side.row_stride};
    return (rows_t){(const char *)out, width};
}

/* Adds a tile, whose floats are in `x` and `y` afterwards. */
INLINE void add_tile(side_t a, side_t b, size_t rows, size_t columns, rows_t *x, rows_t *y, float *scratch,
                     lanes_t totals, int64_t *counts, level_t level)
{
    double squares = 0;
    lanes_t lanes;
    memset(lanes, 0, sizeof lanes);
    *x = floats_of(a, rows, columns, scratch);
    *y = floats_of(b, rows, columns, scratch + CHUNK);
    add_packed(a, b, rows, columns, *x, *y, lanes, level);
    for (size_t i = 0; i < LANES; i++)
        squares += lanes[0][i] + lanes[1][i];
    for (size_t row = 0; !(squares <= DBL_MAX) && row < rows; row++)
        count_odd(x->data + (Py_ssize_t)row * x->stride, y->data + (Py_ssize_t)row * y->stride, columns, counts);
    for (size_t sum = 0; sum < SUMS; sum++)
        for (size_t i = 0; i < LANES; i++)
            totals[sum][i] += lanes[sum][i];
}

/* A pair, the size of both and of their tiles, and where the results go; the scratch has room for four tiles. */
typedef struct {
    side_t a, b;
    Py_ssize_t rows, columns, tile_rows, tile_columns;
    channels_t channels;
    double (*totals)[LANES];
    int64_t *counts;
    float *scratch;
} pair_t;

/* All of these bytes of a file; 0 where they are not there, with errno 0, or cannot be read. */
static int read_all(int file, char *out, size_t size, long long offset)
{
#ifndef _WIN32
    while (size) {
        ssize_t got = pread(file, out, size, (off_t)offset);
        errno = got ? errno : 0;
        if (!got || (got < 0 && errno != EINTR))
            return 0;
        if (got > 0) {
            out += got;
            size -= (size_t)got;
            offset += got;
        }
    }
    return 1;
#else
    (void)file, (void)out, (void)size, (void)offset;
    return errno = 0;
#endif
}

/* A tile of a side, where it lies or as it is read into `out`; no data where it cannot be read. */
INLINE side_t tile_of(side_t side, Py_ssize_t row, Py_ssize_t column, size_t columns, float *out)
{
    Py_ssize_t start = row * side.row_stride + column * side.column_stride;
    side.data += start;
    if (side.file >= 0)
        side.data = read_all(side.file, (char *)out, columns * (size_t)side.column_stride, side.offset + start)
                        ? (const char *)out
                        : NULL;
    return side;
}

/* What is wanted of a tile of a side of one row. */
INLINE void pick(side_t *side, const char *floats, Py_ssize_t column, size_t columns)
{
    int64_t start = side->first + column;
    for (; side->wanted && *side->places < start + (int64_t)columns; side->wanted--)
        *side->picked++ = (float)at(floats, (size_t)(*side->places++ - start));
}

/* 0 where a file cannot be read. */
INLINE int add_pair(pair_t pair, level_t level)
{
    for (Py_ssize_t row = 0; row < pair.rows; row += pair.tile_rows)
        for (Py_ssize_t column = 0; column < pair.columns; column += pair.tile_columns) {
            size_t rows = (size_t)(pair.rows - row < pair.tile_rows ? pair.rows - row : pair.tile_rows);
            size_t columns = (size_t)(pair.columns - column < pair.tile_columns ? pair.columns - column
                                                                                 : pair.tile_columns);
            side_t a_tile = tile_of(pair.a, row, column, columns, pair.scratch);
            side_t b_tile = tile_of(pair.b, row, column, columns, pair.scratch + CHUNK);
            if (!a_tile.data || !b_tile.data)
                return 0;
            rows_t a, b;
            add_tile(a_tile, b_tile, rows, columns, &a, &b, pair.scratch + 2 * CHUNK, pair.totals, pair.counts, level);
            if (pair.channels.count)
                add_channels(a, b, rows, columns, row, column, pair.channels);
            pick(&pair.a, a.data, column, columns);
            pick(&pair.b, b.data, column, columns);
        }
    return 1;
}

/* The same code for every width of vectors, the widest first. */
typedef struct {
    const char *name;
    int (*add_pair)(pair_t);
} variant_t;

#define VARIANT(function, level, attribute)                                                                            \
    attribute static int function(pair_t pair)                                                                         \
    {                                                                                                                  \
        return add_pair(pair, level);                                                                                  \
    }

VARIANT(add_pair_plain, PLAIN, )
#ifdef X86
VARIANT(add_pair_avx2, WITH_AVX2, FOR_AVX2)
VARIANT(add_pair_avx512, WITH_AVX512, FOR_AVX512)
#endif

static const variant_t plain = {"plain C", add_pair_plain};

/* The variant of this name that this processor runs, or the widest where there is no name; NULL for none. */
static const variant_t *variant(const char *name)
{
#ifdef X86
    static const variant_t avx512 = {"AVX-512", add_pair_avx512}, avx2 = {"AVX2", add_pair_avx2};
    __builtin_cpu_init();
    if ((!name || !strcmp(name, avx512.name)) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && has_f16c())
        return &avx512;
    if ((!name || !strcmp(name, avx2.name)) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
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

/* A side, as summation.py describes it. */
static int as_side(PyObject *given, void *into)
{
    unsigned long long data, places, picked;
    side_t *side = into;
    if (!PyArg_ParseTuple(given, "KinnfiiLKnKL:side", &data, &side->kind, &side->row_stride, &side->column_stride,
                          &side->scale, &side->zero, &side->file, &side->offset, &places, &side->wanted, &picked,
                          &side->first))
        return 0;
    side->data = (const char *)(uintptr_t)data;
    side->places = (const int64_t *)(uintptr_t)places;
    side->picked = (float *)(uintptr_t)picked;
    return 1;
}

/* What comes together of some tables: the sums of the lanes, first lane first, and the counts. */
typedef struct {
    Py_ssize_t tables;
    double sums[SUMS];
    int64_t counts[COUNTS];
    int done, error;
} part_t;

static void add_part(part_t *part, const pair_t *pairs, float *scratch)
{
    lanes_t totals;
    memset(totals, 0, sizeof totals);
    for (Py_ssize_t i = 0; i < part->tables; i++) {
        pair_t pair = pairs[i];
        pair.totals = totals;
        pair.counts = part->counts;
        pair.scratch = scratch;
        if (!used->add_pair(pair)) {
            part->error = errno;
            return;
        }
    }
    for (size_t sum = 0; sum < SUMS; sum++) {
        part->sums[sum] = totals[sum][0];
        for (size_t i = 1; i < LANES; i++)
            part->sums[sum] += totals[sum][i];
    }
    part->done = 1;
}

/* The sums and the counts; errno where a file could not be read, 0 where it is too short. */
static PyObject *result_of(const part_t *part)
{
    const double *sums = part->sums;
    const int64_t *counts = part->counts;
    if (!part->done)
        return PyLong_FromLong(part->error);
    return Py_BuildValue("[dddddd][LLLLLLL]", sums[0], sums[1], sums[2], sums[3], sums[4], sums[5],
                         (long long)counts[0], (long long)counts[1], (long long)counts[2], (long long)counts[3],
                         (long long)counts[4], (long long)counts[5], (long long)counts[6]);
}

/* A table, as summation.py describes it. */
static int as_pair(PyObject *given, pair_t *pair)
{
    unsigned long long sums;
    channels_t *channels = &pair->channels;
    if (!PyArg_ParseTuple(given, "O&O&(nnnn)(nnnLK):table", as_side, &pair->a, as_side, &pair->b, &pair->rows,
                          &pair->columns, &pair->tile_rows, &pair->tile_columns, &channels->inner, &channels->count,
                          &channels->skip, &channels->first, &sums))
        return 0;
    channels->errors = (double *)(uintptr_t)sums;
    channels->values = channels->errors + channels->count;
    if (channels->count && (channels->skip < 1 || channels->inner < BY_ROWS || !channels->inner ||
                            (channels->inner == BY_ROWS && pair->rows > channels->count) ||
                            (channels->inner == BY_COLUMNS && pair->columns > channels->count) ||
                            (channels->inner != BY_ROWS && channels->inner < SHORT &&
                             channels->count * (channels->inner < 0 ? 1 : channels->inner) > PERIOD) ||
                            (channels->inner > 0 && pair->rows != 1))) {
        PyErr_SetString(PyExc_ValueError, "channels that the table does not have");
        return 0;
    }
    if (pair->tile_rows >= 1 && pair->tile_columns >= 1 && pair->tile_rows <= CHUNK / pair->tile_columns)
        return 1;
    PyErr_SetString(PyExc_ValueError, "a tile is larger than a chunk, or empty");
    return 0;
}

/* All parts, each a list of tables, one after the other in one go without the GIL. */
static PyObject *all_sums(PyObject *given, part_t *parts, pair_t *pairs, float *scratch)
{
    Py_ssize_t count = PyList_Size(given);
    pair_t *pair = pairs;
    PyObject *results;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tables = PyList_GetItem(given, i);
        parts[i].tables = PyList_Size(tables);
        for (Py_ssize_t j = 0; j < parts[i].tables; j++)
            if (!as_pair(PyList_GetItem(tables, j), pair++))
                return NULL;
    }
    pair = pairs;
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < count; pair += parts[i++].tables)
        add_part(&parts[i], pair, scratch);
    Py_END_ALLOW_THREADS;
    results = PyList_New(count);
    for (Py_ssize_t i = 0; results && i < count; i++) {
        PyObject *result = result_of(&parts[i]);
        if (!result || PyList_SetItem(results, i, result))
            Py_CLEAR(results);
    }
    return results;
}

static PyObject *py_sums(PyObject *module, PyObject *args)
{
    unsigned long long scratch;
    PyObject *given, *results = NULL;
    Py_ssize_t tables = 0;
    part_t *parts;
    pair_t *pairs;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!K:sums", &PyList_Type, &given, &scratch))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(given); i++) {
        Py_ssize_t more = PyList_Size(PyList_GetItem(given, i));
        if (more < 0)
            return NULL;
        tables += more;
    }
    parts = calloc((size_t)PyList_Size(given) + 1, sizeof *parts);
    pairs = calloc((size_t)tables + 1, sizeof *pairs);
    if (parts && pairs)
        results = all_sums(given, parts, pairs, (float *)(uintptr_t)scratch);
    else
        PyErr_NoMemory();
    free(parts);
    free(pairs);
    return results;
}

static PyObject *py_judged(PyObject *module, PyObject *args)
{
    unsigned long long sums;
    Py_ssize_t count;
    limits_t limits;
    (void)module;
    if (!PyArg_ParseTuple(args, "Kndddd:judged", &sums, &count, &limits.floor, &limits.lost, &limits.median,
                          &limits.common))
        return NULL;
    const double *errors = (const double *)(uintptr_t)sums;
    judged_t judged = judge(errors, errors + count, count, limits);
    if (judged.worst < 0)
        Py_RETURN_NONE;
    return Py_BuildValue("nnd", judged.lost, judged.worst, judged.ratio);
}

static PyMethodDef methods[] = {
    {"judged", py_judged, METH_VARARGS, "Of sums of channels: how many are lost, the worst and its RMSE."},
    {"sums", py_sums, METH_VARARGS, "The sums and counts of parts, each a list of tables of a pair; see pair_t."},
    {"vectors", py_vectors, METH_NOARGS, "The vectors in use."},
    {"use", py_use, METH_VARARGS, "Use these vectors; False where this processor has none. For tests."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "kernel", "The sums of a pair of tensors in one pass; see tiles.py.", -1, methods,
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
