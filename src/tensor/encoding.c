/* SPDX-License-Identifier: Apache-2.0
 * encoding.c - the decoders of encoded numbers, one function for a block of each encoding.
 *
 * Small blocks have 32 numbers and one f16 scale d; Q*_1 also have a minimum m. The 4-bit codes of numbers i and
 * i + 16 share byte i, the lower half first. Blocks of the K encodings have 256 numbers in groups of 16 or 32, whose
 * scales (and minima) are small integers times the block's d (and dmin).
 *
 *     Q4_0    d  codes[16]                              d (code - 8)
 *     Q4_1    d  m  codes[16]                           d code + m
 *     Q5_0    d  fifth bits[4]  codes[16]               d (code - 16)
 *     Q5_1    d  m  fifth bits[4]  codes[16]            d code + m
 *     Q8_0    d  codes[32]                              d code
 *     IQ4_NL  d  codes[16]                              d table[code]
 *     MXFP4   exponent  codes[16]                       2^(exponent - 128) doubled e2m1 value
 *     Q2_K    scales[16]  codes[64]  d  dmin            (d scale) code - dmin min, scale and min of 4 bits
 *     Q3_K    third bits[32]  codes[64]  scales[12]  d  (d (scale - 32)) (code - 4)
 *     Q4_K    d  dmin  scales[12]  codes[128]           (d scale) code - dmin min, scale and min of 6 bits
 *     Q5_K    d  dmin  scales[12]  fifth bits[32]  codes[128]  likewise
 *     Q6_K    codes[128]  upper bits[64]  scales[16]  d (d scale) (code - 32)
 *     IQ4_XS  d  upper scales[2]  scales[4]  codes[128] (d (scale - 32)) table[code] */
#include "tensor/encoding.h"

#include "base/checked.h"

enum { SMALL = 32, LARGE = 256 }; /* numbers in a block */

const int8_t proa_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t proa_e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* ---- sizes ---- */

static const struct {
    const char *name;
    int64_t numbers, bytes;
} encodings[PROA_ENCODING_COUNT] = {
#define ROW(name, text, numbers, bytes) {text, numbers, bytes},
    PROA_ENCODING_LIST(ROW)
#undef ROW
};

const char *proa_encoding_name(proa_encoding encoding)
{
    return encodings[encoding].name;
}

int64_t proa_encoding_numbers(proa_encoding encoding)
{
    return encodings[encoding].numbers;
}

int64_t proa_encoding_row_bytes(proa_encoding encoding, int64_t n)
{
    int64_t numbers = encodings[encoding].numbers;
    if (numbers == 0 || n % numbers != 0) return -1;
    return n / numbers * encodings[encoding].bytes;
}

/* ---- codes ---- */

static float read_f16(const uint8_t *at)
{
    return proa_f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

/* Two numbers in each of n bytes: the lower halves first. */
static void split_nibbles(int8_t *codes, const uint8_t *bytes, int n)
{
    for (int i = 0; i < n; i++) codes[i] = (int8_t)(bytes[i] & 15), codes[n + i] = (int8_t)(bytes[i] >> 4);
}

/* Four numbers in each of 32 bytes, the lowest bits first; twice. */
static void split_pairs_of_bits(int8_t *codes, const uint8_t *bytes)
{
    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 32; i++)
                codes[128 * half + 32 * k + i] = (int8_t)(bytes[32 * half + i] >> 2 * k & 3);
}

/* codes[32 k + i] += bit k of bytes[i], times worth. */
static void add_bits(int8_t *codes, const uint8_t *bytes, int worth)
{
    for (int k = 0; k < 8; k++)
        for (int i = 0; i < 32; i++)
            codes[32 * k + i] = (int8_t)(codes[32 * k + i] + (bytes[i] >> k & 1) * worth);
}

static void add_fifth_bits(int8_t codes[SMALL], const uint8_t bytes[4])
{
    for (int i = 0; i < SMALL; i++) codes[i] = (int8_t)(codes[i] | (bytes[i / 8] >> i % 8 & 1) << 4);
}

static void look_up(int8_t *codes, int n, const int8_t table[16])
{
    for (int i = 0; i < n; i++) codes[i] = table[codes[i]];
}

/* ---- codes to numbers ---- */

static void scale_codes(float *y, const int8_t *codes, int n, float d, int offset)
{
    for (int i = 0; i < n; i++) y[i] = d * (float)(codes[i] - offset);
}

static void scale_and_shift(float *y, const int8_t *codes, int n, float d, float shift)
{
    for (int i = 0; i < n; i++) y[i] = d * (float)codes[i] + shift;
}

/* ---- blocks of 32 ---- */

static void decode_q4_0(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    split_nibbles(codes, b + 2, 16);
    scale_codes(y, codes, SMALL, read_f16(b), 8);
}

static void decode_q4_1(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    split_nibbles(codes, b + 4, 16);
    scale_and_shift(y, codes, SMALL, read_f16(b), read_f16(b + 2));
}

static void decode_q5_0(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    split_nibbles(codes, b + 6, 16);
    add_fifth_bits(codes, b + 2);
    scale_codes(y, codes, SMALL, read_f16(b), 16);
}

static void decode_q5_1(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    split_nibbles(codes, b + 8, 16);
    add_fifth_bits(codes, b + 4);
    scale_and_shift(y, codes, SMALL, read_f16(b), read_f16(b + 2));
}

static void decode_q8_0(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    memcpy(codes, b + 2, SMALL);
    scale_codes(y, codes, SMALL, read_f16(b), 0);
}

static void decode_iq4_nl(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    split_nibbles(codes, b + 2, 16);
    look_up(codes, SMALL, proa_iq4_values);
    scale_codes(y, codes, SMALL, read_f16(b), 0);
}

/* 2^(e - 128): half of what the shared exponent of MXFP4 says, for values that are doubled. */
static float half_of_e8m0(uint8_t e)
{
    return proa_bits_f32(e < 2 ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1) << 23);
}

static void decode_mxfp4(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    split_nibbles(codes, b + 1, 16);
    look_up(codes, SMALL, proa_e2m1_doubled);
    scale_codes(y, codes, SMALL, half_of_e8m0(b[0]), 0);
}

/* ---- blocks of 256 ---- */

static void decode_q2_k(float *y, const uint8_t *b)
{
    int8_t codes[LARGE];
    float d = read_f16(b + 80), dmin = read_f16(b + 82);
    split_pairs_of_bits(codes, b + 16);
    for (int g = 0; g < 16; g++)
        scale_and_shift(y + 16 * g, codes + 16 * g, 16, d * (float)(b[g] & 15), -(dmin * (float)(b[g] >> 4)));
}

/* Sixteen scales of 6 bits: the lower 4 bits of scale g are a half of byte g % 8, the upper 2 are in byte 8 + g % 4. */
static void decode_q3_k(float *y, const uint8_t *b)
{
    int8_t codes[LARGE];
    const uint8_t *scales = b + 96;
    float d = read_f16(b + 108);
    split_pairs_of_bits(codes, b + 32);
    add_bits(codes, b, 4);
    for (int g = 0; g < 16; g++) {
        int scale = (scales[g % 8] >> g / 8 * 4 & 15) | (scales[8 + g % 4] >> g / 4 * 2 & 3) << 4;
        scale_codes(y + 16 * g, codes + 16 * g, 16, d * (float)(scale - 32), 4);
    }
}

/* Eight scales and eight minima of 6 bits. The first four of each are the lower bits of bytes 0 to 3 and 4 to 7, whose
 * upper 2 bits belong to the last four; their lower 4 bits are the halves of bytes 8 to 11. */
static void read_scale_and_min(const uint8_t s[12], int g, float *scale, float *min)
{
    if (g < 4) *scale = (float)(s[g] & 63), *min = (float)(s[g + 4] & 63);
    else {
        *scale = (float)((s[g + 4] & 15) | s[g - 4] >> 6 << 4);
        *min = (float)(s[g + 4] >> 4 | s[g] >> 6 << 4);
    }
}

/* b: d, dmin and the scales of Q4_K or Q5_K. */
static void scale_groups(float *y, const int8_t codes[LARGE], const uint8_t *b)
{
    float d = read_f16(b), dmin = read_f16(b + 2), scale, min;
    for (int g = 0; g < 8; g++) {
        read_scale_and_min(b + 4, g, &scale, &min);
        scale_and_shift(y + 32 * g, codes + 32 * g, 32, d * scale, -(dmin * min));
    }
}

static void decode_q4_k(float *y, const uint8_t *b)
{
    int8_t codes[LARGE];
    for (int k = 0; k < 4; k++) split_nibbles(codes + 64 * k, b + 16 + 32 * k, 32);
    scale_groups(y, codes, b);
}

static void decode_q5_k(float *y, const uint8_t *b)
{
    int8_t codes[LARGE];
    for (int k = 0; k < 4; k++) split_nibbles(codes + 64 * k, b + 48 + 32 * k, 32);
    add_bits(codes, b + 16, 16);
    scale_groups(y, codes, b);
}

static void decode_q6_k(float *y, const uint8_t *b)
{
    int8_t codes[LARGE], upper[LARGE];
    float d = read_f16(b + 208);
    for (int half = 0; half < 2; half++) split_nibbles(codes + 128 * half, b + 64 * half, 64);
    split_pairs_of_bits(upper, b + 128);
    for (int i = 0; i < LARGE; i++) codes[i] = (int8_t)(codes[i] | upper[i] << 4);
    for (int g = 0; g < 16; g++)
        scale_codes(y + 16 * g, codes + 16 * g, 16, d * (float)(int8_t)b[192 + g], 32);
}

/* Group g of a block: its codes and its scale. */
static float codes_of_iq4_xs(int8_t codes[SMALL], const uint8_t *b, int g)
{
    int upper = b[2] | b[3] << 8;
    int scale = (b[4 + g / 2] >> g % 2 * 4 & 15) | (upper >> 2 * g & 3) << 4;
    split_nibbles(codes, b + 8 + 16 * g, 16);
    look_up(codes, SMALL, proa_iq4_values);
    return read_f16(b) * (float)(scale - 32);
}

static void decode_iq4_xs(float *y, const uint8_t *b)
{
    int8_t codes[SMALL];
    for (int g = 0; g < 8; g++) {
        float scale = codes_of_iq4_xs(codes, b, g);
        scale_codes(y + 32 * g, codes, SMALL, scale, 0);
    }
}

/* ---- rows ---- */

typedef void decode_fn(float *y, const uint8_t *block);

static decode_fn *const decoders[PROA_ENCODING_COUNT] = {
    [PROA_ENCODING_Q4_0] = decode_q4_0,     [PROA_ENCODING_Q4_1] = decode_q4_1,
    [PROA_ENCODING_Q5_0] = decode_q5_0,     [PROA_ENCODING_Q5_1] = decode_q5_1,
    [PROA_ENCODING_Q8_0] = decode_q8_0,     [PROA_ENCODING_IQ4_NL] = decode_iq4_nl,
    [PROA_ENCODING_MXFP4] = decode_mxfp4,   [PROA_ENCODING_Q2_K] = decode_q2_k,
    [PROA_ENCODING_Q3_K] = decode_q3_k,     [PROA_ENCODING_Q4_K] = decode_q4_k,
    [PROA_ENCODING_Q5_K] = decode_q5_k,     [PROA_ENCODING_Q6_K] = decode_q6_k,
    [PROA_ENCODING_IQ4_XS] = decode_iq4_xs,
};

void proa_encoding_decode(float *out, proa_encoding encoding, const void *row, int64_t col, int64_t n)
{
    decode_fn *decode = decoders[encoding];
    int64_t numbers = proa_encoding_numbers(encoding), bytes = proa_encoding_row_bytes(encoding, numbers);
    const uint8_t *block = (const uint8_t *)row + col / numbers * bytes;
    float part[LARGE];
    for (int64_t from = col % numbers; n > 0; from = 0, block += bytes) {
        int64_t take = proa_min64(n, numbers - from);
        if (take == numbers) decode(out, block);
        else {
            decode(part, block);
            memcpy(out, part + from, (size_t)take * sizeof *out);
        }
        out += take, n -= take;
    }
}

/* ---- groups of codes ---- */

static void codes_of_q4_k(proa_code_group *g, const uint8_t *b, int place)
{
    float scale, min;
    read_scale_and_min(b + 4, place, &scale, &min);
    g->scale = read_f16(b) * scale, g->min = -(read_f16(b + 2) * min);
    int8_t both[2 * PROA_CODES];
    split_nibbles(both, b + 16 + 32 * (place / 2), 32);
    memcpy(g->code, both + place % 2 * PROA_CODES, PROA_CODES);
}

static void set_range(proa_code_group *g, int32_t least, int32_t most)
{
    g->least = least, g->most = most;
}

static void subtract_offset(proa_code_group *g, int offset)
{
    for (int i = 0; i < PROA_CODES; i++) g->code[i] = (int8_t)(g->code[i] - offset);
}

bool proa_encoding_codes(proa_code_group *g, proa_encoding encoding, const void *row, int64_t col)
{
    int64_t numbers = proa_encoding_numbers(encoding), bytes = proa_encoding_row_bytes(encoding, numbers);
    const uint8_t *b = (const uint8_t *)row + col / numbers * bytes;
    g->min = 0;
    switch (encoding) {
    case PROA_ENCODING_Q4_0:
        split_nibbles(g->code, b + 2, 16);
        subtract_offset(g, 8);
        g->scale = read_f16(b);
        return set_range(g, -8, 7), true;
    case PROA_ENCODING_Q4_1:
        split_nibbles(g->code, b + 4, 16);
        g->scale = read_f16(b), g->min = read_f16(b + 2);
        return set_range(g, 0, 15), true;
    case PROA_ENCODING_Q4_K:
        codes_of_q4_k(g, b, (int)(col % numbers / PROA_CODES));
        return set_range(g, 0, 15), true;
    case PROA_ENCODING_Q5_0:
        split_nibbles(g->code, b + 6, 16);
        add_fifth_bits(g->code, b + 2);
        subtract_offset(g, 16);
        g->scale = read_f16(b);
        return set_range(g, -16, 15), true;
    case PROA_ENCODING_Q8_0:
        memcpy(g->code, b + 2, PROA_CODES);
        g->scale = read_f16(b);
        return set_range(g, -128, 127), true;
    case PROA_ENCODING_IQ4_NL:
        split_nibbles(g->code, b + 2, 16);
        look_up(g->code, PROA_CODES, proa_iq4_values);
        g->scale = read_f16(b);
        return set_range(g, -127, 113), true;
    case PROA_ENCODING_IQ4_XS:
        g->scale = codes_of_iq4_xs(g->code, b, (int)(col % numbers / PROA_CODES));
        return set_range(g, -127, 113), true;
    case PROA_ENCODING_MXFP4:
        split_nibbles(g->code, b + 1, 16);
        look_up(g->code, PROA_CODES, proa_e2m1_doubled);
        g->scale = half_of_e8m0(b[0]);
        return set_range(g, -12, 12), true;
    default: return false;
    }
}
