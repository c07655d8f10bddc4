/* SPDX-License-Identifier: Apache-2.0
 * peak_loops.h - the loops that peak.c times, one set for each instruction set.
 * Read loops return a sum of all words, so that no load can be left out; `bytes` is a multiple of 512.
 * Rate loops do `rounds` times PROA_RATE_CHAINS independent multiply-adds on full vectors and return their sum. */
#ifndef PROA_KERNELS_CPU_CEILING_LOOPS_H
#define PROA_KERNELS_CPU_CEILING_LOOPS_H

#include <stdint.h>

#define PROA_RATE_CHAINS 12 /* latency 4 on two ports needs 8 */

uint64_t proa_read_loop_avx2(const char *p, int64_t bytes);
uint64_t proa_read_loop_avx512(const char *p, int64_t bytes);
double proa_rate_loop_f32_avx2(int64_t rounds);
double proa_rate_loop_f32_avx512(int64_t rounds);
double proa_rate_loop_i8_vnni(int64_t rounds);
double proa_rate_loop_bf16_bf16(int64_t rounds);
/* PROA_RATE_TILES multiplications of whole tiles each round. */
#define PROA_RATE_TILES 6
double proa_rate_loop_i8_amx(int64_t rounds);
double proa_rate_loop_bf16_amx(int64_t rounds);

#endif
