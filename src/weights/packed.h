/* SPDX-License-Identifier: Apache-2.0
 * packed.h - the file model.proa: the weights of a model as the kernels of one kind of machine read them.
 * Owner:   the open checkpoint.
 * Way in:  proa_weights_open, then proa_weights_packed.
 *
 *     8 bytes   "PROAPACK"
 *     8 bytes   length of the header, little-endian
 *     header    JSON, see below
 *     zeros     up to a multiple of PROA_PACKED_ALIGNMENT
 *     block     the model's weight memory, byte for byte, up to the end of the file
 *
 *     {"version": 1, "layout": "x86-64 panels 1", "dtype": "auto", "quant": "int8", "main": "int8",
 *      "rank": 0, "ranks": 1, "block_bytes": 123456,
 *      "tensors": {"model.norm.weight": {"dtype": "bf16", "shape": [64], "final": false, "block": 1}, ...},
 *      "weights": [[0, 3, "qkv", "int8", 98304], ...]}
 *
 * tensors are those of the checkpoint that was packed: they bind to the model's slots, but have no numbers (encoding
 * PACKED). weights says for each slot with memory, in the order of the block: the stack, the layer, the slot, the
 * format of a matrix or "-" (with "+order" if its inputs are in an order of their own), the bytes. The reader checks
 * the form; the model checks all of it against its own plan, so nothing in the header says where a weight is.
 *
 * For several ranks (model/ranks) there is a file for each, model-00001-of-00002.proa and so on, with the weights of
 * that rank. The tensors are those of the whole model in all of them, and are cut as they were when it was packed;
 * block: columns of a tensor that belong together. */
#ifndef PROA_WEIGHTS_PACKED_H
#define PROA_WEIGHTS_PACKED_H

#include "weights/weights.h"

#define PROA_PACKED_MAGIC     "PROAPACK"
#define PROA_PACKED_NAME      "model.proa"
#define PROA_PACKED_PART      "model-%05d-of-%05d.proa" /* rank + 1, ranks */
#define PROA_PACKED_BLOCK_MAX (1 << 20)
#define PROA_PACKED_VERSION   1
#define PROA_PACKED_ALIGNMENT 4096

typedef struct proa_packed_weight {
    int32_t stack;
    int64_t layer, bytes;
    const char *slot, *format; /* as the model and the kernels name them */
} proa_packed_weight;

typedef struct proa_packed_file {
    const char *layout;         /* proa_ops.layout of the table that packed it */
    const char *dtype, *quant;  /* the options that it was packed with */
    const char *main;           /* format of the layers' matrices */
    int32_t rank, ranks;        /* which part it is, of how many */
    const char *name;           /* of the file */
    proa_packed_weight *weight; /* [count] */
    int64_t count;
    const char *block; /* aligned to PROA_PACKED_ALIGNMENT in the mapped file */
    int64_t block_bytes;
} proa_packed_file;

/* What a packed checkpoint says; NULL: it is of another form. */
const proa_packed_file *proa_weights_packed(const proa_weights *w);

#endif
