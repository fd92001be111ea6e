/* Convolutions of several pixels at a time, which share the reading of the weights. kernel.c includes this file once for
 * each width of vectors, with
 *
 *   SUMS          name of the function; its arguments are those of pixel_sums, with at least PIXELS pixels in the result
 *   TARGET        processor that it is compiled for
 *   VECTOR        LANES partial sums of each of OF_VECTOR outputs
 *   IN_REGISTERS  number of such vectors whose sums of PIXELS pixels stay in registers
 *   READ(x)       LANES values, repeated for each output of a vector
 *   EXCHANGE_1, EXCHANGE_2, EXCHANGE_4 (a, b)
 *                 a step of a transposition: `a` gets the lanes of both vectors whose index lacks this bit, `b` the others
 */

#define VECTORS (OUTPUTS / OF_VECTOR)
#define AT_ONCE (LANES / PIXELS) /* vectors whose lanes are added together */

TARGET static void SUMS(const sums_t *s)
{
    const Py_ssize_t pixel = s->blocks * LANES, line = s->width * pixel, all = s->rows * s->columns;
    const Py_ssize_t part = s->kernel_rows * s->kernel_columns * s->blocks * OUTPUTS * LANES;
    Py_ssize_t first, at, i, j, b;
    int begin, k, p, l;
    for (first = 0; first < s->outputs; first += OUTPUTS) {
        const int count = s->outputs - first < OUTPUTS ? (int)(s->outputs - first) : OUTPUTS;
        for (at = 0; at < all; at += PIXELS) {
            const float *starts[PIXELS];
            VECTOR sums[VECTORS][PIXELS];
            if (at > all - PIXELS)
                at = all - PIXELS; /* some pixels once more */
            for (p = 0; p < PIXELS; p++)
                starts[p] = s->x + (at + p) / s->columns * s->down * line + (at + p) % s->columns * s->across * pixel;
            for (begin = 0; begin < VECTORS; begin += IN_REGISTERS) {
                const float *w = s->weights + first / OUTPUTS * part + begin * OF_VECTOR * LANES;
                VECTOR own[IN_REGISTERS][PIXELS];
#pragma GCC unroll 4
                for (k = 0; k < IN_REGISTERS; k++)
#pragma GCC unroll 4
                    for (p = 0; p < PIXELS; p++)
                        own[k][p] = (VECTOR){0};
                for (i = 0; i < s->kernel_rows; i++) {
                    for (j = 0; j < s->kernel_columns; j++) {
                        const Py_ssize_t shift = i * s->dilation_down * line + j * s->dilation_across * pixel;
                        for (b = 0; b < pixel; b += LANES, w += OUTPUTS * LANES) {
                            VECTOR values[PIXELS];
#pragma GCC unroll 4
                            for (p = 0; p < PIXELS; p++)
                                values[p] = READ(starts[p] + shift + b);
#pragma GCC unroll 4
                            for (k = 0; k < IN_REGISTERS; k++)
#pragma GCC unroll 4
                                for (p = 0; p < PIXELS; p++)
                                    own[k][p] += values[p] * ((const VECTOR *)w)[k];
                        }
                    }
                }
#pragma GCC unroll 4
                for (k = 0; k < IN_REGISTERS; k++)
#pragma GCC unroll 4
                    for (p = 0; p < PIXELS; p++)
                        sums[begin + k][p] = own[k][p];
            }
            for (begin = 0; begin < VECTORS; begin += AT_ONCE) {
                const Py_ssize_t output = first + begin * OF_VECTOR;
                VECTOR v[LANES], total; /* a vector for each output and pixel, then one for each lane */
#pragma GCC unroll 8
                for (l = 0; l < LANES; l++)
                    v[l] = sums[begin + l / PIXELS][l % PIXELS];
#pragma GCC unroll 8
                for (l = 0; l < LANES; l += 2)
                    EXCHANGE_1(v[l], v[l + 1]);
#pragma GCC unroll 8
                for (l = 0; l < LANES; l++)
                    if (!(l & 2))
                        EXCHANGE_2(v[l], v[l + 2]);
#pragma GCC unroll 8
                for (l = 0; l < LANES / 2; l++)
                    EXCHANGE_4(v[l], v[l + 4]);
                total = v[0];
#pragma GCC unroll 8
                for (l = 1; l < LANES; l++)
                    total += v[l];
#pragma GCC unroll 8
                for (k = 0; k < AT_ONCE * OF_VECTOR; k++) { /* pixels of one output after another */
                    const Py_ssize_t o = output + k % AT_ONCE * OF_VECTOR + k / AT_ONCE;
                    float pixels[PIXELS];
                    if (o - first < count) {
                        for (p = 0; p < PIXELS; p++)
                            pixels[p] = total[k * PIXELS + p] + s->bias[o];
                        memcpy(s->out + o * all + at, pixels, sizeof pixels);
                    }
                }
            }
        }
    }
}

#undef VECTORS
#undef AT_ONCE
#undef SUMS
#undef TARGET
#undef VECTOR
#undef OF_VECTOR
#undef IN_REGISTERS
#undef READ
#undef EXCHANGE_1
#undef EXCHANGE_2
#undef EXCHANGE_4
