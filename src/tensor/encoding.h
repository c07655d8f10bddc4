/* SPDX-License-Identifier: Apache-2.0
 * encoding.h - decoders of numbers that are stored in blocks with scales (PROA_ENCODING_LIST of source.h).
 * Threads: any; nothing is kept between calls.
 * Formulas: llama.cpp's dequantize_row_* (ggml/src/ggml-quants.c), in the same order of operations, so that the f32
 * results are the same bits; MXFP4: OCP Microscaling Formats v1.0. Layouts are drawn in encoding.c. */
#ifndef PROA_TENSOR_ENCODING_H
#define PROA_TENSOR_ENCODING_H

#include "tensor/source.h"

/* The numbers of four bits: e2m1 (OCP Microscaling Formats v1.0) doubled, and those of IQ4_NL and IQ4_XS. */
extern const int8_t proa_e2m1_doubled[16], proa_iq4_values[16];

/* out[i] = number col + i of an encoded row, i in [0, n). row: the row's first block, at any address. col and n need
 * not be multiples of the block; col + n is at most the row's length. Not for PLAIN. */
void proa_encoding_decode(float *out, proa_encoding encoding, const void *row, int64_t col, int64_t n);

/* The 32 numbers from col on, a multiple of 32, as codes with one scale (source.h); false if the encoding has no such
 * groups. MXFP4's codes are doubled e2m1 values, those of IQ4_NL and IQ4_XS are numbers of their table. */
bool proa_encoding_codes(proa_code_group *group, proa_encoding encoding, const void *row, int64_t col);

#endif
