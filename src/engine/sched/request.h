/* SPDX-License-Identifier: Apache-2.0
 * request.h - a request inside the engine: what it asks for, how far it is, what it has used. Private to src/engine.
 * Owner:   the engine owns a request from proa_engine_submit until its DONE event has been emitted.
 * Threads: submit writes it on the caller's thread before it is in any list; from then on it belongs to the stepping
 *          thread, but for `cancelled` (any thread) and the links of `live` (under shared.lock).
 * Way in:  ../submit makes it, scheduler.c has the diagram of its life, output.c emits its events. */
#ifndef PROA_ENGINE_SCHED_REQUEST_H
#define PROA_ENGINE_SCHED_REQUEST_H

#include "base/arena.h"
#include "engine/adapters.h"
#include "engine/decode/beam.h"
#include "engine/decode/contrastive.h"
#include "engine/decode/logits_processor.h"
#include "engine/speculate/proposer.h"
#include "engine/sched/sequence.h"
#include "engine/sessions.h"
#include "model/model.h"
#include "model/prefix.h"
#include <stdatomic.h>

typedef struct proa_client_queue proa_client_queue;

/* The state of a request. With an encoder the two ENCODE phases come first, and a request to an encoder-only model ends
 * after them. */
typedef enum proa_request_phase {
    PROA_PHASE_QUEUED,          /* not admitted: holds no pages and no slots */
    PROA_PHASE_ENCODE_WAITING,  /* admitted; its encoder input has not been run yet */
    PROA_PHASE_ENCODE_INFLIGHT, /* in an encoder pass whose outputs the host has not received */
    PROA_PHASE_DECODER          /* its sequences run, each as far as its own tokens go */
} proa_request_phase;

/* What the encoder gets, for models that have one; fixed at submit. Arrays are the request's own. */
typedef struct proa_encoder_source {
    int32_t *ids; /* [count]; NULL: `embedded`, or there is no encoder */
    int64_t count;
    int64_t head_row;          /* which of them the head computes, of models that have one row of an input */
    int64_t virtual_count;     /* tokens of the adapter's table, which were put before the others */
    int32_t *types;            /* [count] token types; NULL: all 0 */
    float *embedded;           /* [count][hidden] input embeddings in place of ids; or NULL */
    bool is_encoded;           /* `embedded` are the encoder's outputs, so that no pass is needed */
    proa_tensor_memory memory; /* where they were given then; on a GPU `embedded` stays the caller's */
    proa_encoder_place place; /* memory of the device for the encoder's outputs; all NULL: they go to the host */
} proa_encoder_source;

/* Beam search or contrastive search: M candidates for each of the request's `width` rows. All zero without. */
typedef struct proa_request_search {
    proa_beam *beam;            /* NULL: no beam search */
    proa_contrastive *contrast; /* NULL: no contrastive search */
    int64_t candidates;         /* M */
    int32_t *ids;               /* [width][M] */
    float *logprobs;            /* [width][M] */
    float *numbers;             /* [width][M] Gumbel numbers of a sampled beam search; else NULL */
    int32_t *parent;            /* [width] the row that each row of the next step continues */
    int32_t *token;             /* [width] input of the next step */
    int32_t *path; /* [width][new_max + 1] tokens of each row, for logits processors; NULL without them */
    int32_t *path_next;    /* the same for the step after; the two are swapped */
    int64_t depth;         /* tokens of path */
    float *scores_row;     /* [vocab] of a beam that is emitted; NULL: none is */
    float *probs, *hidden; /* [width], [width][hidden]: of the candidates that contrastive search runs */
} proa_request_search;

/* What a request has used so far, for its results and the engine's statistics. Times: proa_clock_ns; 0: not yet. */
typedef struct proa_request_usage {
    int64_t new_tokens;        /* of all sequences together */
    int64_t cached_tokens;     /* of input and prompt, whose keys and values were found in the prefix tree */
    int64_t drafted, accepted; /* draft tokens that were verified, those of them that were right */
    int64_t submitted_ns, admitted_ns, first_ns; /* first_ns: when the first token or row was emitted */
} proa_request_usage;

/* The engine's own copy of a submitted proa_request, with everything that its decoding needs. It groups sequences,
 * which start together from one prompt. */
struct proa_engine_request {
    /* lists, and who it is */
    proa_engine_request *next; /* in the inbox, the waiting list or the running list */
    proa_engine_request *live_next,
        **live_link; /* in the list that cancel searches; what points to this one there */
    uint64_t id;
    atomic_bool cancelled; /* any thread sets it */

    /* what it asks for; fixed at submit */
    proa_task task;
    proa_options options; /* defaults resolved; lists are in the arena */
    proa_arena arena;
    proa_encoder_source input;
    int32_t *prompt; /* [prompt_count] ids of the decoder, virtual tokens and session included */
    int64_t prompt_count;
    proa_prefix prefix; /* the part of the prompt that sees itself both ways (model/prefix.h) */
    int32_t *predicted; /* [predicted_count] tokens that its output is expected to repeat; or NULL */
    int64_t predicted_count;
    int64_t new_max;              /* new tokens of each sequence at most */
    int64_t deadline_ns;          /* it ends with an error then; 0: never */
    proa_engine_session *session; /* that it continues, and holds until its end; NULL: none */
    bool session_begins, session_ends;
    proa_adapter *adapter;           /* NULL: the model alone */
    proa_adapter *table;             /* the prompt table that it brought; NULL: none */
    proa_tensor_memory table_memory; /* where it was given; on a GPU `virtuals` is the request's own */
    const proa_prompt_table *virtuals; /* of one of the two: ids from the vocabulary's size on are its rows; or NULL */
    int64_t virtual_count;             /* tokens of the adapter's table, which were put before its prompt */

    /* what it emits, and where rows go */
    proa_event_fn *on_event; /* called on the stepping thread, with no lock held */
    void *arg;
    const int32_t *visible; /* [visible_count] special tokens whose text is emitted; in the arena */
    int64_t visible_count;
    bool scores; /* the rows that tokens are chosen by are wanted: in events, or in `rows` */
    bool emits_scores, emits_logits; /* events have these rows; raw logits */
    proa_request_rows rows;          /* memory of the caller for rows; all zero: none */
    bool rows_in_place; /* that is memory where the model runs, and no row is wanted in an event */
    float *encoded;     /* task ENCODE: [input.count][hidden] hidden states to emit; else NULL */
    proa_logprob *top;  /* [top_logprobs] for each sequence, or for each of PROA_HEAD_ROWS prompt rows */

    /* what it may hold (admission.c); counts are pages */
    proa_client_queue *queue; /* where it waits */
    int32_t width;     /* sequences, beams or candidates, which share the prompt's pages; each has a slot */
    int32_t sequences; /* those of `seq` that emit tokens: 1 or n; 0 for beams */
    int64_t reserved;  /* that it can come to use */
    int64_t promised;  /* that it holds or may take at any time, while admitted */
    int32_t slot;      /* first of its `width` slots, while admitted */
    bool keeps_pages;  /* all of `reserved` are promised at admission; otherwise it may be preempted */
    bool preempted;    /* once at least */
    bool moves; /* its pages go to memory of the host, if they are evicted, and come back; else they are run again */
    proa_kv_namespace *space; /* of its pages in the prefix tree; NULL: it neither reuses nor keeps any */
    int64_t read_until_ns;    /* until then it waits for pages of a folder; 0: it has not waited yet */

    /* how far it is */
    proa_request_phase phase;
    int32_t leader;     /* the sequence that runs the prompt, from whose pages the others start */
    int32_t running;    /* sequences that have not ended */
    int64_t rows_done;  /* rows of the prompt whose outputs were emitted, if it wants those of all rows */
    proa_finish ending; /* decided during a step, carried out by proa_retire_ended */
    proa_err error;     /* why, when ending is ERROR */
    proa_request_usage usage;

    /* how its tokens are chosen */
    proa_seq *seq;                 /* [width] */
    proa_logits_processor *logits; /* NULL: no option changes logits */
    proa_request_search search;
    bool race;                        /* how its tokens are drawn on the host (proa_sampler_race) */
    bool samples_on_device;           /* its tokens can be sampled where the model runs (async_step.c) */
    proa_sample_params sample_params; /* how, but for the random number of each row */
    int64_t entries; /* entries that its logits processors can need in one step on the device, all sequences */
    const proa_proposer *proposer; /* drafts its tokens; &proa_propose_none: none are drafted */
};

/* Whether the next pass runs a part of its prompt, or what is computed anew after a preemption. */
static inline bool proa_seq_runs_chunk(const proa_seq *seq)
{
    return seq->length < seq->req->prompt_count || seq->known - seq->length > 1;
}

/* Whether the logits (or hidden states) of every prompt row are needed, not only of the last one. */
bool proa_request_wants_all_rows(const proa_engine_request *req);
/* Whether the encoder's outputs go to memory of the caller on the device. */
bool proa_request_has_place(const proa_engine_request *req);
/* The tokens of a sequence of the request, of which `count` were generated, as logits processors see them. */
proa_history proa_request_history(const proa_engine_request *req, const int32_t *generated, int64_t count);
/* A request that is in no list and holds no pages; NULL is fine. */
void proa_engine_request_free(proa_engine_request *req);

#endif
