/* SPDX-License-Identifier: Apache-2.0
 * rope.h - how rotary positions are scaled: what a configuration says of it, and the frequencies that follow.
 * Owner:   proa_rope_params is part of proa_config; its lists are in the configuration's arena.
 * Way in:  proa_config_read_rope (config.h) reads, proa_rope_inv_freq computes.
 *
 * Formulas: transformers' modeling_rope_utils.py, 4.57 and 5.17; in float32 where these compute in float32. */
#ifndef PROA_MODEL_ROPE_H
#define PROA_MODEL_ROPE_H

#include "base/arena.h"
#include "base/json.h"
#include "kernels/ops.h"

typedef enum proa_rope_kind {
    PROA_ROPE_PLAIN,
    PROA_ROPE_LINEAR,  /* positions divided by the factor */
    PROA_ROPE_LLAMA3,  /* long wavelengths divided by the factor, short ones kept (Llama 3.1) */
    PROA_ROPE_DYNAMIC, /* the base grows with the sequence, once it is longer than `original` (dynamic NTK) */
    PROA_ROPE_DOUBLED, /* the same for a length that is `original`, doubled until the prompt fits (Qwen 1) */
    PROA_ROPE_YARN,    /* a ramp from kept to divided frequencies (Peng et al. 2023) */
    PROA_ROPE_PROPORTIONAL, /* the first `part` of the frequencies, the other ones are 0 (Gemma 4) */
    PROA_ROPE_LONG /* each frequency divided by its own factor; two lists of factors (Ding et al. 2024) */
} proa_rope_kind;

typedef struct proa_rope_params {
    proa_rope_kind kind;
    double theta; /* the base; 0: there is no rope */
    double factor;
    double part;                 /* PROPORTIONAL */
    bool half;                   /* PLAIN: the frequencies are rounded to f16 (ChatGLM-6B) */
    double low, high;            /* LLAMA3 */
    double beta_fast, beta_slow; /* YARN: rotations over `original` positions where the ramp begins and ends */
    bool truncate;               /* YARN: the ramp begins and ends at whole dimensions */
    double mscale, mscale_all;   /* YARN: of DeepSeek's models; 0: not named */
    int64_t original;            /* positions that the model was trained with */
    const float *short_factor, *long_factor; /* LONG: [rotary_dim / 2] */
    double scale, long_scale; /* of cosines and sines; long_scale: of sequences longer than `original` */
} proa_rope_params;

/* Reads one object of rope parameters (rope_scaling, or rope_parameters, or one of its layer types). p->theta holds the
 * default; context: max_position_embeddings; rotary_dim: for how many numbers of a head. */
PROA_MUST_CHECK proa_status proa_rope_read(proa_rope_params *p, const proa_json *rope, int64_t context,
                                           int64_t rotary_dim, proa_arena *arena, proa_err *err);
/* The positions that are meant to be used: what `context` grows to by the scaling, at most PROA_CONTEXT_MAX. */
int64_t proa_rope_context(const proa_rope_params *p, int64_t context);
/* inv_freq[rotary_dim / 2]; longer: of sequences longer than p->original, where those differ (LONG). */
void proa_rope_inv_freq(const proa_rope_params *p, int64_t rotary_dim, bool longer, float *inv_freq);
/* Whether the frequencies depend on the length of the sequence. */
bool proa_rope_by_length(const proa_rope_params *p);
/* The length by which the frequencies of a row are chosen (proa_rope_freqs): of the row at `position` of a sequence
 * that has a prompt of `prompt` tokens and can grow to `longest`.
 *
 * Dynamic NTK: transformers computes the frequencies anew for each pass, from the highest position in it. So a prompt
 * has those of its own length, and each token after it has those of the length so far, while cached keys keep theirs.
 * Proa does the same for each sequence, and all chunks of a prompt have the frequencies of the whole prompt. vLLM uses
 * the frequencies of the longest context for all sequences, short ones too.
 *
 * Qwen 1's own code computes them once, for the prompt, and only where it doubles the length: tokens after it have the
 * same.
 *
 * LongRoPE: transformers chooses the short or the long factors for each pass. Keys of both kinds do not match, so its
 * Phi-3 computes the whole sequence anew where it becomes longer than `original`. vLLM decides once for all sequences,
 * by the longest context that the server allows. Proa decides for each sequence, by the length that it can grow to: all
 * its keys are of one kind, and a sequence that stays short has the short factors. */
int64_t proa_rope_length(const proa_rope_params *p, int64_t position, int64_t prompt, int64_t longest);
/* YaRN's attention factor: 0.1 mscale ln(factor) + 1, and 1 for factors up to 1. */
double proa_rope_mscale(double factor, double mscale);

#endif
