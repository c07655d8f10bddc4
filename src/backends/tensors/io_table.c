/* SPDX-License-Identifier: Apache-2.0
 * io_table.c - adds the rows of a table to the messages of a configuration. */
#include "backends/tensors/io_table.h"

#include <string.h>

static int64_t *copy_dims(const proa_io_row *row, proa_arena *arena)
{
    int64_t *dims = PROA_ARENA_NEW(arena, int64_t, row->rank);
    for (int i = 0; i < row->rank; i++) dims[i] = row->dims[i];
    return dims;
}

static size_t count_rows(const proa_io_row *rows)
{
    size_t n = 0;
    while (rows[n].name) n++;
    return n;
}

static char *copy_name(const char *name, proa_arena *arena)
{
    return proa_arena_strdup(arena, proa_str_c(name));
}

/* reshape { shape: [ ] }: one element without a dimension of its own. */
static Inference__ModelTensorReshape *scalar_shape(const proa_io_row *row, proa_arena *arena)
{
    if (!(row->flags & PROA_IO_SCALAR)) return NULL;
    Inference__ModelTensorReshape *reshape = PROA_ARENA_NEW(arena, Inference__ModelTensorReshape, 1);
    inference__model_tensor_reshape__init(reshape);
    return reshape;
}

void proa_config_inputs(Inference__ModelConfig *c, const proa_io_row *rows, proa_arena *arena)
{
    size_t n = count_rows(rows);
    Inference__ModelInput **list = PROA_ARENA_NEW(arena, Inference__ModelInput *, (int64_t)(c->n_input + n));
    if (c->n_input) memcpy(list, c->input, c->n_input * sizeof(void *));
    for (size_t i = 0; i < n; i++) {
        Inference__ModelInput *in = PROA_ARENA_NEW(arena, Inference__ModelInput, 1);
        inference__model_input__init(in);
        in->name = copy_name(rows[i].name, arena);
        in->data_type = rows[i].type;
        in->n_dims = (size_t)rows[i].rank;
        in->dims = copy_dims(&rows[i], arena);
        in->optional = (rows[i].flags & PROA_IO_OPTIONAL) != 0;
        in->allow_ragged_batch = (rows[i].flags & PROA_IO_RAGGED) != 0;
        in->reshape = scalar_shape(&rows[i], arena);
        list[c->n_input + i] = in;
    }
    c->input = list;
    c->n_input += n;
}

void proa_config_outputs(Inference__ModelConfig *c, const proa_io_row *rows, proa_arena *arena)
{
    size_t n = count_rows(rows);
    Inference__ModelOutput **list = PROA_ARENA_NEW(arena, Inference__ModelOutput *, (int64_t)(c->n_output + n));
    if (c->n_output) memcpy(list, c->output, c->n_output * sizeof(void *));
    for (size_t i = 0; i < n; i++) {
        Inference__ModelOutput *out = PROA_ARENA_NEW(arena, Inference__ModelOutput, 1);
        inference__model_output__init(out);
        out->name = copy_name(rows[i].name, arena);
        out->data_type = rows[i].type;
        out->n_dims = (size_t)rows[i].rank;
        out->dims = copy_dims(&rows[i], arena);
        out->reshape = scalar_shape(&rows[i], arena);
        list[c->n_output + i] = out;
    }
    c->output = list;
    c->n_output += n;
}

void proa_config_decoupled(Inference__ModelConfig *c, bool decoupled, proa_arena *arena)
{
    if (c->model_transaction_policy) return;
    Inference__ModelTransactionPolicy *policy = PROA_ARENA_NEW(arena, Inference__ModelTransactionPolicy, 1);
    inference__model_transaction_policy__init(policy);
    policy->decoupled = decoupled;
    c->model_transaction_policy = policy;
}

proa_type proa_config_output_type(const Inference__ModelConfig *c, const char *name)
{
    for (size_t i = 0; i < c->n_output; i++)
        if (strcmp(c->output[i]->name, name) == 0) return (proa_type)c->output[i]->data_type;
    return PROA_TYPE_INVALID;
}
