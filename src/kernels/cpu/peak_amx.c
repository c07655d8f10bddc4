/* SPDX-License-Identifier: Apache-2.0
 * peak_amx.c - peak of int8 and bf16 products in AMX tiles. */
#include "kernels/cpu/peak_loops.h"

#include "base/compiler.h"
#include <immintrin.h>
#include <string.h>

/* Tiles 0 to 5 take sums, 6 and 7 are multiplied. */
static void tiles_begin(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
    uint32_t words[16][16];
    for (int i = 0; i < 256; i++)
        words[i / 16][i % 16] = 0x3c003c00u + (uint32_t)i; /* small numbers in either type */
    __asm__ volatile("" ::: "memory");                     /* GCC does not know that the next two read them */
    _tile_loadd(6, words, 64);
    _tile_loadd(7, words, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
}

static double tiles_end(void)
{
    uint32_t words[16][16], all = 0;
    _tile_stored(0, words, 64);
    for (int i = 0; i < 256; i++) all ^= words[i / 16][i % 16];
    _tile_release();
    return (double)all;
}

double proa_rate_loop_i8_amx(int64_t rounds)
{
    tiles_begin();
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbusd(0, 6, 7);
        _tile_dpbusd(1, 6, 7);
        _tile_dpbusd(2, 6, 7);
        _tile_dpbusd(3, 6, 7);
        _tile_dpbusd(4, 6, 7);
        _tile_dpbusd(5, 6, 7);
    }
    return tiles_end();
}

double proa_rate_loop_bf16_amx(int64_t rounds)
{
    tiles_begin();
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
        _tile_dpbf16ps(4, 6, 7);
        _tile_dpbf16ps(5, 6, 7);
    }
    return tiles_end();
}
