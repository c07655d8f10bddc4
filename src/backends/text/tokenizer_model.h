/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_model.h - what the backends `tokenizer` and `detokenizer` share: a tokenizer by a model's configuration.
 * Owner:   proa_tokenizer_model_open/close; it does not change after, so any number of threads may use it. */
#ifndef PROA_BACKENDS_TEXT_TOKENIZER_MODEL_H
#define PROA_BACKENDS_TEXT_TOKENIZER_MODEL_H

#include "backends/tensors/io_table.h"
#include "text/token_bytes.h"
#include "serve/backend.h"

typedef struct proa_tokenizer_model {
    const proa_served_model *model;
    proa_tokenizer *tokenizer;
    proa_token_bytes *pieces;
    int32_t end_id, pad_id; /* -1: none */
    bool add_special;       /* parameter add_special_tokens; true */
    bool skip_special;      /* parameter skip_special_tokens; true */
    bool continuation;      /* parameter continuation; false: each reply is a text of its own */
    bool unsigned_ids; /* FasterTransformer's generation: ids are UINT32, words come as one line of CSV */
    int32_t threads;   /* parameter threads: of an instance, for requests of many rows; 0: as many as CPUs */
} proa_tokenizer_model;

/* Opens the tokenizer of the folder that tokenizer_dir (or tokenizer_path) names, or else of the version's or the
 * model's folder. open and close have the signatures of a backend's model_open and model_close. */
proa_status proa_tokenizer_model_open(void **out, proa_served_model *model, proa_err *err);
void proa_tokenizer_model_close(void *tokens); /* NULL is fine */
/* An input by its usual name or the other generation's; NULL if there is none. */
const proa_tensor *proa_tokenizer_model_input(const proa_infer *r, const char *name);
/* The name that the configuration has for an output; NULL: not configured, or not wanted. Its type goes to *type. */
const char *proa_tokenizer_model_output(const proa_tokenizer_model *t, const proa_infer *r, const char *name,
                                        proa_type *type);
/* Adds the tensor to the reply as output `name`, by reference. */
void proa_tokenizer_model_share(proa_reply *reply, const char *name, const proa_tensor *tensor);
/* Tensors of a configuration that has none; it then takes batches of at most 64 rows. */
void proa_tokenizer_model_complete(Inference__ModelConfig *config, const proa_io_row *inputs,
                                   const proa_io_row *outputs, proa_arena *arena);

#endif
