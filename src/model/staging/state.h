/* SPDX-License-Identifier: Apache-2.0
 * state.h - the staging buffers of a model, for staging.c, sample.c and output.c only. */
#ifndef PROA_MODEL_STAGING_STATE_H
#define PROA_MODEL_STAGING_STATE_H

#include "base/checked.h"
#include "model/staging/staging.h"

enum { PROA_STAGING_ENTRIES_BYTES = PROA_LOGITS_ENTRIES_MAX * (int)sizeof(proa_logits_entry) };

/* How much is sampled in a step: it determines where each list of proa_sampled begins (sample.c). */
typedef struct proa_sampled_counts {
    int64_t tokens, rows, entries; /* tokens of all rows and beams; rows and candidates of beam steps */
    int64_t logits, top;           /* of single tokens, if they were requested */
} proa_sampled_counts;

struct proa_staging {
    /* The batch in one block on each side. On the host the device's block is touched only if the batch has ids
     * that only the model knows. */
    char *host, *device;
    int64_t bytes, used;
    int64_t page_entries_max; /* entries of all page tables of a step */

    /* On the device, one allocation that begins at rows. */
    int32_t *rows; /* [3][rows_max]: rows that the head gathers; 0, 1, 2, ...; sampled_at of a batch's rows */
    proa_sample_params *sample_params; /* [sampled_rows] */
    proa_beam_params *beam_params;     /* [sampled_rows / 2] */
    proa_logits_row *row_processors;   /* [sampled_rows] */
    int32_t *last_sampled_at;          /* [sampled_rows] */
    int32_t *last_ids;                 /* [sampled_rows] the ids found there */
    int32_t *mask_of;                  /* [sampled_rows] masks of rows */
    float *beam_scores;                /* [sampled_rows] */
    proa_beam_hyp *beam_hyps;          /* [sampled_rows] */
    void *top_k;           /* the result of a top-k; the next pass may still read `sampled` meanwhile */
    char *sampled;         /* what was sampled last (sample.c lays it out) */
    int32_t *deferred_ids; /* of a pipeline: [PROA_STEPS_MAX][sampled_rows] ids of deferred requests, by ticket */
    int32_t *beam_parents;      /* in `sampled` */
    proa_logits_entry *entries; /* [PROA_LOGITS_ENTRIES_MAX] by itself; NULL on the host and for encoders */
    uint32_t *masks;            /* [sampled_rows][words of the outputs] the same */

    /* On the host. */
    proa_beam_params *uploaded_beam_params; /* [uploaded_beams] copy of what the device has */
    int64_t uploaded_beams;
    char *received[PROA_STEPS_MAX]; /* by ticket: copies of `sampled`; those from 2 on are for deferred tokens */
    int awaited[PROA_STEPS_MAX]; /* [awaited_count] tickets whose tokens are on their way, in their order */
    int32_t awaited_count;
    bool deferred[PROA_STEPS_MAX]; /* by ticket: the request was */
    char *received_top_k;          /* copy of `top_k`: steps of both tickets can be in flight */
    proa_sampled_counts received_counts[PROA_STEPS_MAX];
    float *logits, *hidden; /* [head_rows][outputs], [head_rows][hidden] */
    int64_t logits_width, hidden_width;
    /* By ticket, of encoders. */
    float *inputs[PROA_STEPS_MAX];   /* [2][sampled_rows][outputs] of the head, then of the pooler */
    float *all_rows[PROA_STEPS_MAX]; /* [rows_max][outputs] of a headless model */
    bool unordered[PROA_STEPS_MAX]; /* all_rows were sent without ordering them before the kernels that follow */
    bool stays[PROA_STEPS_MAX];     /* the last stage has them: proa_model.outputs_stay */
    int64_t inputs_count[PROA_STEPS_MAX], rows_count[PROA_STEPS_MAX];
    proa_encoder_outputs outputs[PROA_STEPS_MAX];
};

/* Aligned room for `count` words of 4 bytes at *at, which moves on. */
static inline void *proa_staging_carve(char *memory, int64_t *at, int64_t count)
{
    int64_t begin = *at;
    *at = begin + proa_round_up(4 * count, 16);
    return memory + begin;
}
/* Row numbers where the model runs: `room`, into which they are copied, or an array that has the same numbers
 * already. */
const int32_t *proa_staging_device_rows(proa_model *m, const int32_t *rows, int64_t count, int32_t *room);

/* sample.c: bytes of `sampled` for the largest step, of `top_k` for the most rows of the head, and of
 * `deferred_ids`. */
int64_t proa_sampled_bytes(const proa_model *m);
int64_t proa_top_k_bytes(const proa_model *m);
int64_t proa_deferred_bytes(const proa_model *m);
/* The ids of a deferred request in the first stage on a device. Kernels that follow see them. */
const int32_t *proa_staging_deferred_ids(proa_model *m, int ticket);
/* output.c. On the host all_rows are allocated when they are first needed. */
PROA_MUST_CHECK proa_status proa_staging_outputs_make(proa_model *m, proa_err *err);
void proa_staging_outputs_free(proa_model *m);

#endif
