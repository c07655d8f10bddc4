/* SPDX-License-Identifier: Apache-2.0
 * gguf_values.h - the metadata of a GGUF file that is written. Internal to gguf*.c.
 * Owner:   the caller's proa_gguf_values; release it.
 * Way in:  proa_buf_init of .bytes, the put functions; .bytes then holds `count` members as the file has them. */
#ifndef PROA_CONVERT_GGUF_VALUES_H
#define PROA_CONVERT_GGUF_VALUES_H

#include "base/str.h"
#include "convert/bound.h"
#include "text/tokenizer.h"
#include "weights/gguf/arch.h"

typedef struct proa_gguf_values {
    proa_buf bytes;
    int64_t count;
} proa_gguf_values;

/* Little-endian numbers, as everything in the file. */
void proa_gguf_put_u32(proa_buf *out, uint32_t v);
void proa_gguf_put_u64(proa_buf *out, uint64_t v);
void proa_gguf_put_text(proa_buf *out, proa_str s); /* u64 length, bytes */

/* Members. */
void proa_gguf_value_u32(proa_gguf_values *v, const char *key, int64_t value);
void proa_gguf_value_f32(proa_gguf_values *v, const char *key, double value);
void proa_gguf_value_bool(proa_gguf_values *v, const char *key, bool value);
void proa_gguf_value_str(proa_gguf_values *v, const char *key, proa_str value);
/* The head of an array; its `count` elements follow in v->bytes. */
void proa_gguf_value_array(proa_gguf_values *v, const char *key, proa_gguf_type element, int64_t count);

/* gguf_config.c: the members ARCHITECTURE.*. UNSUPPORTED names a key that has no value. */
PROA_MUST_CHECK proa_status proa_gguf_put_config(proa_gguf_values *v, const proa_gguf_arch *arch,
                                                 const proa_bound *t, proa_err *err);
/* The divisors of rotary frequencies that a tensor of that name has: [rotary_dim / 2] into out; false: the model needs
 * no such tensor. */
bool proa_gguf_rope_tensor(float *out, const char *name, const proa_config *c);
/* gguf_factors.c: what row `row` of a tensor is multiplied by where factors of products are part of the weights. */
double proa_gguf_factor(const proa_config *c, const proa_bound_tensor *t, int64_t row);
/* The configuration of such weights. The head is no longer tied if it has another factor than the embeddings. */
void proa_gguf_drop_factors(proa_config *c);
/* gguf_tokenizer.c: tokenizer.*, as many tokens as the configuration has. Only the model "none" if the model has no
 * tokenizer. ranked: BPE over UTF-8 is written by the ranks of its merges, as Gemma 4's, not by scores. UNSUPPORTED
 * says what the format cannot express. */
PROA_MUST_CHECK proa_status proa_gguf_put_tokenizer(proa_gguf_values *v, const proa_files *files,
                                                    const proa_config *c, bool ranked, proa_err *err);

/* gguf_pooling.c: the pooling of an embedder. UNSUPPORTED: llama.cpp has no such pooling. */
PROA_MUST_CHECK proa_status proa_gguf_put_pooling(proa_gguf_values *v, const proa_gguf_arch *arch,
                                                  const proa_files *files, proa_err *err);

/* gguf_check.c: what the format cannot say shows when it is read back by this program's reader; UNSUPPORTED names it.
 * Compares sizes, factors and rotations with the model's. head: the file up to its data, then the tensors of rotary
 * factors, which are first. */
PROA_MUST_CHECK proa_status proa_gguf_check_config(proa_str head, const proa_bound *t, proa_err *err);
/* A file without tensors, which has a tokenizer alone. */
void proa_gguf_put_vocabulary(proa_buf *out, const proa_gguf_values *v);
/* Compares the ids of some texts. v: the members tokenizer.* */
PROA_MUST_CHECK proa_status proa_gguf_check_tokenizer(const proa_gguf_values *v, const proa_tokenizer *own,
                                                      proa_err *err);

#endif
