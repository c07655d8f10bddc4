/* SPDX-License-Identifier: Apache-2.0
 * io_shapes.h - short names of types and shapes for tables of proa_io_row; only for the files that have such tables. */
#ifndef PROA_BACKENDS_TENSORS_IO_SHAPES_H
#define PROA_BACKENDS_TENSORS_IO_SHAPES_H

#include "backends/tensors/io_table.h"

/* clang-format off */
#define T(name)  INFERENCE__DATA_TYPE__TYPE_##name
#define OPTIONAL PROA_IO_OPTIONAL
#define RAGGED   (PROA_IO_OPTIONAL | PROA_IO_RAGGED)
/* rank and dims of a row */
#define ONE      1, {1}
#define ANY_1D   1, {-1}
#define ANY_2D   2, {-1, -1}
#define ANY_3D   3, {-1, -1, -1}
#define WORDS    2, {2, -1} /* word_lists.h */
/* with the flags: one number for each row of a batch, without a dimension of its own */
#define SCALAR   ONE, PROA_IO_OPTIONAL | PROA_IO_SCALAR
#define NEEDED   ONE, PROA_IO_SCALAR
/* clang-format on */

#endif
