/* SPDX-License-Identifier: Apache-2.0
 * io_table.h - tables of the inputs and outputs of a backend, from which a configuration that leaves them out is
 *              completed. io_shapes.h has short names for the rows.
 * Owner:   what is added to a configuration is in the arena of the caller.
 * Threads: any, one at a time on one configuration. */
#ifndef PROA_BACKENDS_TENSORS_IO_TABLE_H
#define PROA_BACKENDS_TENSORS_IO_TABLE_H

#include "serve/backend.h"
#include "serve/config/config.h"

enum {
    PROA_IO_OPTIONAL = 1, /* an input that a request may leave out */
    PROA_IO_SCALAR = 2, /* one element for each row of the batch, without a dimension of its own: reshape [] */
    PROA_IO_RAGGED = 4  /* an input whose rows may have different shapes */
};

/* One input or output. A table ends with a row without a name. */
typedef struct proa_io_row {
    const char *name;
    Inference__DataType type;
    int rank;
    int64_t dims[4]; /* [rank], -1: any */
    unsigned flags;  /* PROA_IO_* */
} proa_io_row;

/* Adds the rows of a table behind what the configuration has. */
void proa_config_inputs(Inference__ModelConfig *c, const proa_io_row *rows, proa_arena *arena);
void proa_config_outputs(Inference__ModelConfig *c, const proa_io_row *rows, proa_arena *arena);
/* Sets whether the model is decoupled, unless the configuration says so itself. */
void proa_config_decoupled(Inference__ModelConfig *c, bool decoupled, proa_arena *arena);
/* The type of an output; INVALID: there is no such output. */
proa_type proa_config_output_type(const Inference__ModelConfig *c, const char *name);

#endif
