/* SPDX-License-Identifier: Apache-2.0
 * request.h - a request inside the engine, its sequences, and the engine itself. Private to src/engine.
 * Owner:   the engine owns a request from proa_engine_submit until its DONE event has been emitted.
 * Threads: `shared.lock` guards `shared`; everything else belongs to the stepping thread.
 * Way in:  scheduler.c has the state diagram of a step. */
#ifndef PROA_ENGINE_SCHED_REQUEST_H
#define PROA_ENGINE_SCHED_REQUEST_H

#include "engine/decode/beam.h"
#include "engine/decode/contrastive.h"
#include "engine/decode/draft.h"
#include "engine/decode/lookup.h"
#include "engine/decode/logits_processor.h"
#include "engine/decode/sampler.h"
#include "engine/decode/stop.h"
#include "engine/adapters.h"
#include "engine/chat.h"
#include "grammar/grammar.h"
#include "engine/memory.h"
#include "engine/ranks/rank_set.h"
#include "engine/sched/draft_model.h"
#include "engine/sched/handoff.h"
#include "engine/heads/propose_eagle.h"
#include "engine/heads/propose_medusa.h"
#include "base/options.h"
#include "engine/sched/prompt_budget.h"
#include "engine/sessions.h"
#include "kv/prefix_tree.h"
#include "model/prefix.h"
#include <pthread.h>
#include <stdatomic.h>

/* The state of a request. With an encoder the two ENCODE phases come first, and a request to an encoder-only model ends
 * after them. */
typedef enum proa_request_phase {
    PROA_PHASE_QUEUED,          /* not admitted: holds no pages and no slots */
    PROA_PHASE_ENCODE_WAITING,  /* admitted; its encoder input has not been run yet */
    PROA_PHASE_ENCODE_INFLIGHT, /* in an encoder pass whose outputs the host has not received */
    PROA_PHASE_DECODER          /* its sequences run, each as far as its own tokens go */
} proa_request_phase;

typedef struct proa_client_queue proa_client_queue;

/* One sequence of a request: one of `n` or `best_of`, a beam, or a candidate of contrastive search.
 *
 * Its tokens are the prompt and then those that it generated. `known` of them exist; the keys and values of the first
 * `length` are in its pages. A step runs tokens [length, known), or as many of them as the budget allows, and the
 * logits of the last known token give the next one:
 *
 *   0            length        prompt_count              known
 *   |== in pages ==|== to be run ==|=== generated, to be run ===|
 *
 * So a prompt in chunks, one token a step, and a sequence whose pages were dropped are one case. */
struct proa_seq {
    proa_engine_request *req;
    int32_t index;          /* in its request */
    proa_page_table *table; /* its pages, those of slot req->slot + index; NULL: its request is not admitted */
    int64_t length, known;  /* tokens, as above */
    proa_prefix_cursor cached; /* its first pages that are in the prefix tree, too */
    /* while only the device knows the last of the known tokens: its index among the ids sampled last; -1: the host
     * knows it */
    int32_t sampled_at;
    int sampled_ticket; /* and the step that samples it */
    uint64_t seed;      /* of its random numbers: draw i depends on (seed, i) alone */
    int32_t *ids;       /* [new_max] generated so far; NULL for beams and candidates after the first */
    int64_t count;      /* of ids */
    int32_t drafts;     /* draft tokens after them: tokens [known, known + drafts) (speculate.c) */
    int64_t rows_valid; /* rows of this step give tokens up to this position; lower once a draft token was wrong */
    bool verifying; /* a pass with its draft tokens is in flight: it takes no part in the next one */
    proa_lookup lookup; /* all tokens in one row: input, prompt, predicted and generated ones; zero without lookup */
    float lookup_right, lookup_expected; /* guesses that were right, and that were expected to be: decaying sums */
    proa_draft_state draft;
    uint8_t draft_chance[PROA_DRAFT_MAX]; /* of its draft tokens: proa_draft_chance_of */
    proa_dropped_token dropped;           /* after them (draft_model.c) */
    proa_draft_tree *tree;                /* its drafts are a tree, in place of a chain after ids; or NULL */
    /* of Medusa heads: where the hidden states of its rows in pass number state_pass are kept, from the first one on,
     * and the row of its newest token */
    int64_t state_pass, state_at;
    int32_t state_row;
    int64_t draft_length;      /* tokens whose keys and values the draft model or the EAGLE head has */
    proa_eagle_states *states; /* of EAGLE heads; NULL: there are none */
    double logprob_sum;        /* of ids, if log-probabilities were requested */
    proa_finish finish;        /* NONE while it runs */
    proa_detok *detok;         /* NULL without a tokenizer, and for beams */
    proa_stop stop;
    proa_buf piece; /* text of the last token */
    proa_buf shown; /* all text emitted so far, kept only if the results need it */
};

/* Whether its drafts are a tree; otherwise they are a chain after ids. */
static inline bool proa_seq_has_tree(const proa_seq *seq)
{
    return seq->tree && seq->drafts > 0;
}

/* The engine's own copy of a submitted proa_request, with everything that its decoding needs. It groups sequences,
 * which start together from one prompt. */
struct proa_engine_request {
    /* fixed at submit */
    proa_engine_request *next; /* in the inbox, the waiting list or the running list */
    proa_engine_request *live_next,
        **live_link; /* in the list that cancel searches; what points to this one there */
    uint64_t id;
    proa_task task;
    proa_options options; /* defaults resolved; lists are in the arena */
    proa_arena arena;
    proa_event_fn *on_event;
    void *arg;
    int32_t *input; /* encoder models: [input_count] ids of the encoder */
    int64_t input_count;
    int32_t *input_types;     /* [input_count] token types; NULL: all 0 */
    float *embedded;          /* [input_count][hidden] input embeddings in place of ids; or NULL */
    bool encoded_given;       /* they are the encoder's outputs */
    float *encoded;           /* task ENCODE: [input_count][hidden] hidden states to emit */
    proa_encoder_place place; /* where the outputs of its encoder go */
    const int32_t *visible;   /* [visible_count] special tokens whose text is emitted; in the arena */
    int64_t visible_count;
    proa_tensor_memory encoded_memory; /* of `embedded`, if they are outputs of the encoder; on a GPU: the caller's */
    bool scores;                       /* the rows that tokens are chosen by are wanted, */
    bool emits_scores, emits_logits; /* in its events: these rows, and raw logits */
    proa_request_rows rows;          /* where rows go; all zero: nowhere */
    bool rows_in_place; /* that is memory where the model runs, and no row is wanted in an event */
    int32_t *prompt;    /* [prompt_count] ids of the decoder */
    int64_t prompt_count;
    proa_prefix prefix; /* of the prompt */
    int32_t width;      /* sequences, beams or candidates, which share the prompt's pages */
    int32_t sequences;  /* those of `seq` that emit tokens: 1 or n; 0 for beams */
    int64_t reserved;   /* pages that it can come to use */
    bool preempted;     /* once at least */
    bool moves; /* its pages go to memory of the host, if they are evicted, and come back; else they are run again */
    bool keeps_pages; /* all these are promised at admission; otherwise it may be preempted (admission.c) */
    proa_client_queue *queue;     /* where it waits */
    int64_t deadline_ns;          /* it ends with an error then; 0: never */
    proa_kv_namespace *space;     /* of its pages in the prefix tree; NULL: it neither reuses nor keeps any */
    int64_t new_max;              /* new tokens of each sequence at most */
    proa_engine_session *session; /* that it continues, and holds until its end; NULL: none */
    bool session_begins, session_ends;
    proa_adapter *adapter;           /* NULL: the model alone */
    proa_adapter *table;             /* that it brought on the host; NULL: none */
    proa_tensor_memory table_memory; /* of one that it brought; on a GPU `virtuals` is the request's own */
    const proa_prompt_table *virtuals; /* of one of the two: ids from the vocabulary's size on are its rows; or NULL */
    int64_t virtual_count;             /* tokens of the adapter's table, which were put before its prompt */
    atomic_bool cancelled;

    /* progress */
    proa_request_phase phase;
    int32_t slot;              /* first of `width` slots (page tables), while admitted */
    int32_t leader;            /* the sequence that runs the prompt, from whose pages the others start */
    int64_t promised;          /* pages that it holds or may take at any time, while admitted */
    int64_t new_tokens;        /* of all sequences together */
    int64_t cached_tokens;     /* of input and prompt, whose keys and values were found in the prefix tree */
    int64_t read_until_ns;     /* until then it waits for pages of a folder; 0: it has not waited yet */
    int64_t drafted, accepted; /* draft tokens that were verified, those that were right */
    int32_t running;           /* sequences that have not ended */
    int64_t rows_done;  /* rows of the prompt whose outputs were emitted, if it wants those of all rows */
    proa_finish ending; /* decided during a step, carried out by proa_sched_retire */
    proa_err error;     /* why, when ending is ERROR */
    int64_t submitted_ns, admitted_ns, first_ns;

    /* decoding */
    proa_seq *seq;                 /* [width] */
    proa_logits_processor *logits; /* NULL: no option changes logits */
    proa_logprob *top;      /* [top_logprobs] for each sequence, or for each of PROA_HEAD_ROWS prompt rows */
    bool samples_on_device; /* its tokens can be sampled where the model runs (async_step.c) */
    proa_sample_params sample_params; /* how, but for the random number of each row */
    int64_t entries; /* entries that its logits processors can need in one step, all sequences */
    const proa_proposer *proposer; /* who drafts its tokens; &proa_propose_none: nobody */
    int32_t *predicted; /* [predicted_count] tokens that its output is expected to repeat; or NULL */
    int64_t predicted_count;
    bool race; /* how its tokens are drawn on the host (proa_sampler_race) */

    /* beam and contrastive search: M candidates for each of `width` rows */
    proa_beam *beam;
    int64_t candidates;   /* M; 0: neither */
    int32_t *beam_ids;    /* [width][M] */
    float *beam_logprobs; /* [width][M] */
    float *beam_numbers;  /* [width][M] Gumbel numbers of a sampled beam search; else NULL */
    int32_t *beam_parent; /* [width] */
    int32_t *beam_token;  /* [width] input of the next step */
    int32_t *path; /* [width][new_max + 1] tokens of each row, for logits processors; NULL without them */
    int32_t *path_next; /* the same for the step after; the two are swapped */
    int64_t depth;      /* tokens of path */
    proa_contrastive *contrast;
    float *scores_row;     /* [vocab] of a beam that is emitted; NULL: none is */
    float *probs, *hidden; /* [width], [width][hidden]: of the candidates that run */
};

/* Whether the next pass runs a part of its prompt, or what is computed anew after a preemption. */
static inline bool proa_seq_runs_chunk(const proa_seq *seq)
{
    return seq->length < seq->req->prompt_count || seq->known - seq->length > 1;
}

typedef struct proa_request_list {
    proa_engine_request *first, **last;
    int32_t count;
} proa_request_list;

/* Waiting requests of one client and one priority (clients.c). It lives while the client has requests with it. */
struct proa_client_queue {
    /* guarded by shared.lock */
    proa_client_queue *next_in_bucket;
    char *client;
    int32_t priority;
    int32_t users; /* requests */
    /* the stepping thread's */
    proa_client_queue *next; /* in proa_waiting.queues, if it has requests */
    proa_request_list requests;
    int64_t deficit; /* tokens that its next requests may cost */
};

/* All waiting requests. */
typedef struct proa_waiting {
    proa_client_queue *queues; /* with requests: by falling priority, those of one priority in the order of turns */
    int32_t count;             /* requests */
} proa_waiting;

/* One row of the step whose logits are needed. */
typedef struct proa_logits_request {
    proa_seq *seq;
    int32_t row;      /* of the step */
    int32_t position; /* of the row's token in its sequence: below prompt_count it is a row of the prompt */
    int32_t node;     /* of a tree of draft tokens: 1 + the node; else 0 */
} proa_logits_request;

/* One token to be sampled on the host from a row of logits. Many are sampled at once, spread over the thread pool. */
typedef struct proa_draw {
    proa_seq *seq;
    int64_t position;          /* of the token to be sampled */
    int32_t node;              /* of the row, as in proa_logits_request */
    const float *raw, *hidden; /* the head's row, and its input */
    const proa_logprob *top;   /* the likeliest tokens, if the request wants them */
    const float *scores;       /* the row that the token was chosen by, likewise */
    proa_err err;
} proa_draw;

/* A token that the device samples. seq NULL: its request was detached meanwhile. */
typedef struct proa_pending_token {
    proa_seq *seq;
    int64_t position; /* in its sequence */
    int32_t node;     /* of the row, as in proa_logits_request */
} proa_pending_token;

/* A step that was submitted and whose tokens the host has not received. */
typedef struct proa_inflight_step {
    proa_pending_token *pending_tokens; /* [sampled_rows] */
    int64_t count;                      /* of them */
    int64_t rows, submitted_ns;         /* of the pass, if all of its rows are sampled; else 0 */
    proa_step_shape shape;              /* of the pass */
    bool timed;  /* the end of the pass before was observed, so that the time of this one will be known */
    bool logits; /* the sampled tokens' logits come back too, */
    int32_t top; /* and this many of the likeliest tokens of each row */
    proa_beam_params *search;           /* [sampled_rows / 2 + 1] steps of beam searches */
    proa_engine_request **search_owner; /* their requests; NULL: detached */
    int64_t searches;
    int ticket; /* for proa_model_wait_sampled: its first place in proa_async_steps.step */
} proa_inflight_step;

/* Where tokens are sampled, if all of a step's can be sampled there, and when the host receives them. */
typedef enum proa_sample_mode {
    PROA_SAMPLE_HOST,   /* on the host */
    PROA_SAMPLE_DEVICE, /* on the device; received before the next step is submitted */
    PROA_SAMPLE_ASYNC,  /* on the device; received after the next step was submitted */
    PROA_SAMPLE_STAGES  /* in the last stage of a pipeline; steps of other sequences run meanwhile */
} proa_sample_mode;

/* An input of an encoder pass. req NULL: the request was detached meanwhile. */
typedef struct proa_encoder_input {
    proa_engine_request *req;
    int64_t row; /* its first row in the pass */
} proa_encoder_input;

/* An encoder pass that was submitted and whose outputs the host has not received. */
typedef struct proa_encoder_pass {
    proa_encoder_input *input; /* [sequences_max], `count` used */
    int64_t count;
    bool wants_outputs; /* the model sends its outputs by itself, */
    int32_t ticket;     /* under this number */
    bool exclusive; /* the host will ask the model for more, so no other pass may be submitted before it completes */
} proa_encoder_pass;

/* A slot is one row of each of the three tables; a request holds `width` neighbouring slots. */
typedef struct proa_slots {
    int32_t *memory;                       /* [PROA_TABLES][sequences_max][cap] entries of all page tables */
    int64_t cap;                           /* pages of one table */
    proa_page_table *self, *spare, *cross; /* [sequences_max]: own pages; next step's, for beams; encoder's */
    bool *used;                            /* [sequences_max] */
    int32_t first_free;                    /* every slot below it is used */
} proa_slots;

/* The batch of the current pass. Arrays of [rows_max]. */
typedef struct proa_step_arrays {
    int64_t rows, spans; /* in use */
    int64_t prefixes;    /* the last of the spans: prefixes of prompts */
    int32_t *ids, *positions, *block_positions, *lengths;
    int32_t *types;      /* token types of an encoder pass */
    bool any_types;      /* some are not 0 */
    int32_t *sampled_at; /* index of the row's id among those sampled last on the device; -1: `ids` has it */
    bool any_sampled_at; /* some are not -1 */
    proa_span *self_spans, *cross_spans;
    uint64_t *seen; /* masks of rows of trees */
    bool any_tree;
    proa_seq **span_seqs;  /* the sequence of each span of a decoder's pass */
    proa_seq **chunks;     /* [sequences_max] sequences with prompts to run, in the order of their turns */
    proa_step_shape shape; /* of a decoder's pass */
    int32_t *lora;         /* the slot of each span's adapter; -1: none */
    bool any_lora;         /* some are not -1 */
    proa_pending_beams *pending; /* beam searches whose last step the host has not received */
    int64_t pending_count;
    proa_inputs_embeds *inputs_embeds; /* of rows without an id of the vocabulary */
    int64_t inputs_embeds_count;
    bool encoded;                         /* they are outputs of the encoder (proa_batch) */
    proa_logits_request *logits_requests; /* [logits_count] */
    int32_t *logits_rows;                 /* their rows, as the head takes them */
    proa_encoder_place *places;           /* [sequences_max] of the inputs of an encoder pass */
    int64_t logits_count;
} proa_step_arrays;

/* Rows of logits that the host has, and is yet to process. */
typedef struct proa_fetched_logits {
    proa_logits_request requests[PROA_HEAD_ROWS]; /* seq NULL: detached meanwhile */
    int64_t count;                                /* 0: none */
    proa_view rows;                               /* [count][vocab] */
    /* of a model on the host, whose next pass overwrites its head: [PROA_HEAD_ROWS][vocab] and [..][hidden width]
     * copies; NULL: the head's own rows stay */
    float *logits_copy, *hidden_copy;
} proa_fetched_logits;

/* Logits on the host, at most PROA_HEAD_ROWS rows at once. */
typedef struct proa_head_buffers {
    proa_fetched_logits fetched;
    int64_t first_row; /* of the head's rows: the first one of the request that is processed */
    proa_logprob *top; /* [PROA_HEAD_ROWS][PROA_TOP_LOGPROBS_MAX] of the rows that are sampled; touched if wanted */
    proa_draw draws[PROA_HEAD_ROWS];
    proa_sampler_row draw_rows[PROA_HEAD_ROWS];
    int64_t draw_count;
    /* [PROA_HEAD_ROWS][vocab] copies that logits processors change; touched only where a row itself must stay */
    float *processed_logits;
    proa_logits_job processing[PROA_HEAD_ROWS]; /* of the draw_rows that have processors */
    int64_t processing_count;
    float lse[PROA_HEAD_ROWS];
    int32_t *top_ids; /* [PROA_HEAD_ROWS][PROA_TOP_MAX] */
    float *top_logits;
    float prompt_logprobs[PROA_HEAD_ROWS];
} proa_head_buffers;

/* Steps whose tokens the device samples, and the parameters of the step that is submitted next. */
typedef struct proa_async_steps {
    proa_sample_mode mode;
    proa_inflight_step step[PROA_STEPS_MAX]; /* the oldest one first */
    int32_t count, most;                     /* of step: how many are in flight, and may be */
    int32_t groups; /* PROA_SAMPLE_STAGES: the number of steps into which decoding sequences are divided */
    bool follows;   /* the step that is built takes sequences whose tokens the oldest one in flight samples */
    proa_sample_params *sample_params; /* [sampled_rows] */
    bool any_random;                   /* not all rows are greedy */
    bool untimed;                      /* the end of the pass that was submitted last will not be observed */
    proa_logits_row *row_processors;   /* [sampled_rows] logits processors of each row */
    proa_logits_entry *entries; /* [PROA_LOGITS_ENTRIES_MAX] their entries; memory is touched only where it is used */
    int32_t *last_sampled_at; /* [sampled_rows] a row's last token, as proa_seq.sampled_at */
    bool any_processed;
    float **raw_to, **scores_to; /* [sampled_rows] where a row goes (proa_request_rows); NULL: nowhere */
    proa_beam_rows *search_to;   /* [sampled_rows / 2 + 1] the same of a beam step's rows */
    bool any_rows;
    uint32_t *masks;  /* [sampled_rows][words of a row] of constrained rows; touched only where it is used */
    int32_t *mask_of; /* [sampled_rows] the mask of each row, -1: none */
    proa_logits_job *mask_jobs; /* [sampled_rows] what each mask is made from */
    int64_t masks_count;        /* of this step */
    bool waits; /* a pass was submitted whose sampling is to follow, once the host knows the tokens before it */
    int64_t pass_ns;          /* when the pass was submitted */
    int64_t entries_count;    /* entries of this step */
    int64_t entries_reserved; /* entries that running requests can come to need */
} proa_async_steps;

/* What is known about the drafts of one proposer, for greedy or for sampled text. */
typedef struct proa_drafts_kind {
    proa_draft_state first; /* with whose rate sequences begin: the mean over all */
    proa_draft_account account;
    int64_t drafted; /* tokens of the last pass */
} proa_drafts_kind;

enum { PROA_DRAFT_KINDS = 2 * PROA_PROPOSERS };

typedef struct proa_speculation {
    const proa_proposer *proposer; /* of requests that do not choose one */
    int64_t tokens_max;            /* of one draft */
    /* of the next pass: [sequences_max] sequences that could draft, and those of one proposer that do */
    proa_draft_offer *offers;
    proa_seq **seqs; /* of each offer */
    proa_draft_chain *chains;
    float *chances; /* [sequences_max][PROA_DRAFT_MAX] of offers of prompt lookup */
    proa_drafts_kind kinds[PROA_DRAFT_KINDS];
    proa_lookup_rates lookup_rates[2]; /* of sampled text; of greedy text */
    proa_draft_times times;
    int64_t drafts_in_row;  /* passes with drafts since the last one without */
    double drafting_ns;     /* to draft those of the last pass */
    int64_t drafted, right; /* draft tokens of the last pass */
    double pause_ns;        /* between passes of which the second was not submitted ahead: a decaying mean */
    int64_t last_end_ns;    /* of the last pass */
    int64_t proposed_ns;    /* when the drafts of the last pass were ready */
} proa_speculation;

/* How long passes take, and how many rows of prompts they get. */
typedef struct proa_prompt_pacing {
    proa_prompt_budget budget;
    proa_step_times times;
    double pair_work;    /* a row's attention to one token, as a part of all its other work */
    int64_t last_end_ns; /* of the last pass */
} proa_prompt_pacing;

typedef struct proa_encoder_passes {
    proa_encoder_pass pass[2]; /* the older one first */
    int32_t count;             /* 0, 1 or 2 */
} proa_encoder_passes;

enum { PROA_CLIENT_BUCKETS = 256 };

/* A function that another thread has the stepping thread run between two steps (job.c); on that thread's stack. */
typedef struct proa_engine_job {
    void (*run)(void *arg);
    void *arg;
    bool done;
    struct proa_engine_job *next;
} proa_engine_job;

/* What callers' threads touch; guarded by lock. */
typedef struct proa_engine_shared {
    pthread_mutex_t lock;
    pthread_cond_t work; /* signalled when a request arrives, or the thread is to stop */
    atomic_bool work_signalled; /* the same as a hint for proa_engine_start's thread, which polls it before it sleeps */
    proa_request_list inbox;   /* submitted, not yet seen by the stepping thread */
    proa_request_list held;    /* submitted, and kept back until proa_engine_release (handoff.h) */
    proa_engine_request *live; /* all requests that are not done */
    proa_client_queue *clients[PROA_CLIENT_BUCKETS]; /* all, by a hash of name and priority */
    uint64_t next_id;
    proa_engine_job *jobs, **jobs_last; /* not done */
    pthread_cond_t jobs_done;           /* signalled when one is */
    atomic_bool jobs_wait; /* there are some, as a hint for the stepping thread, which submits no step ahead then */
    proa_stats stats;                     /* published after each step */
    atomic_uint_fast64_t failures;        /* of the device */
    proa_err lost;                        /* why ranks in other processes do not work; status OK: they do */
    proa_kv_handoff *arriving, *returned; /* handoffs to this engine, not yet seen; those from it that have ended */
    atomic_bool handoffs_wait;            /* there are some, as a hint for the stepping thread */
    pthread_t thread;
    bool thread_runs, stop;
} proa_engine_shared;

/* Restarts of ranks that are processes (ranks/recovery.h). */
typedef struct proa_recovery {
    int64_t next_ns, pause_ns; /* when the next try is, and how long after the last failure; 0: none is needed */
    int64_t restarted_ns;      /* the last restart; 0: none */
} proa_recovery;

struct proa_engine {
    proa_pool *pool;
    proa_device *device;
    proa_model *model;
    proa_tokenizer *tokenizer;      /* NULL: ids only */
    proa_grammars *grammars;        /* of constrained output; NULL without a tokenizer */
    proa_options defaults;          /* of generation_config.json */
    int64_t length_max, length_min; /* of a decoder: its max_length and min_length, prompt included; 0: none */
    proa_arena arena;               /* lists of the defaults, and the arrays of all structs below */
    proa_sizes sizes;
    char plan[PROA_PLAN_TEXT]; /* sizes in words */
    proa_memory memory;
    proa_adapters adapters;
    proa_rank_set ranks;        /* rank 0 has device and pool */
    proa_kv_pages pages;        /* of rank 0 */
    proa_prefix_tree prefixes;  /* zero: there is no prefix cache */
    proa_host_cache host_cache; /* its lower levels; of capacity 0: there are none */
    bool writes_left;           /* pages are yet to be written to the folder */
    bool reads_waited;  /* a sequence would be in this pass if a page of the folder were read already */
    bool prefix_broken; /* the device has failed: what is in the tree may be wrong */
    proa_kv *kv;        /* [ranks][kv_stride] */
    proa_sampler_scratch *samplers; /* [threads] */

    proa_waiting waiting;      /* not admitted, */
    proa_request_list running; /* admitted */
    proa_slots slots;
    proa_step_arrays step;
    proa_head_buffers head;
    proa_async_steps async;
    proa_encoder_passes encoder;
    proa_sessions sessions;
    int64_t session_pages;     /* of all proa_decoder_session; a page of several sequences counts for each */
    proa_kv_handoff *handoffs; /* to this engine, under way: the oldest first */
    int64_t handoff_pages; /* that handoffs from and to this engine hold; a page of several counts for each */
    proa_engine_chat_template chat;
    proa_speculation speculation;
    proa_prompt_pacing pacing;
    proa_draft_model *draft_model; /* NULL: none */
    proa_medusa_proposer *medusa;  /* likewise */
    proa_eagle_proposer *eagle;    /* likewise */
    proa_stats now;                /* the stepping thread's own counters */
    proa_engine_shared shared;
    proa_recovery recovery;
};

void proa_engine_request_free(proa_engine_request *req);

/* output.c: events to the request's callback. BEGIN: it was admitted. */
void proa_emit_begin(proa_engine_request *req);
/* A token: makes its text and applies the stop rules; sets seq->finish when the sequence ends. */
void proa_emit_token(const proa_draw *draw, const proa_sample *sample);
/* rows [count][columns] of the input from row `first` on, or pooled [columns]; the other is NULL. */
void proa_emit_rows(proa_engine_request *req, const float *rows, const float *pooled, int64_t first,
                    int64_t count, int64_t columns);
/* The tokens of a sequence of the request, of which `count` were generated. */
proa_history proa_request_history(const proa_engine_request *req, const int32_t *generated, int64_t count);
/* A row of a beam in this step; one of the two is NULL. */
/* Rows of a request in memory of its caller, and encoder outputs there (../request_rows.c). check: of a request that is
 * submitted. begin, end: on the stepping thread, before the first row is written or read, and before DONE. */
proa_status proa_request_rows_check(const proa_engine *e, const proa_request *r, proa_err *err);
void proa_request_rows_begin(proa_engine *e, const proa_engine_request *req);
void proa_request_rows_end(proa_engine *e, const proa_engine_request *req);
/* Where the row of a step and a sequence or beam goes; rows: one of req->rows. NULL: nowhere. put: a row of the
 * host. */
float *proa_request_row(const proa_engine *e, const proa_engine_request *req, float *rows, int64_t step,
                        int32_t sequence);
void proa_request_row_put(proa_engine *e, const proa_engine_request *req, float *rows, int64_t step,
                          int32_t sequence, const float *values);
void proa_emit_scores(proa_engine_request *req, int64_t beam, const float *logits, const float *scores,
                      int64_t columns);
/* Log-probabilities of the prompt's tokens [first, first + count). */
void proa_emit_prompt(proa_engine_request *req, const float *logprobs, int64_t first, int64_t count);
/* DONE, then frees the request, which is in no list any more and holds no pages. */
void proa_emit_done(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error);

/* process_logits.c: rows that the host processes. Runs the head over the rows of step.logits_requests, all groups but
 * the last of which are processed at once; the last one stays fetched, so that the next pass can be submitted before
 * the host processes it. */
void proa_fetch_logits(proa_engine *e);
/* Gives each request of the fetched rows its tokens, candidates or rows; sets req->ending. */
void proa_process_logits(proa_engine *e);
/* Makes e->head.draw_rows[i] from the logits of the row before the sequence's token at this position. i: below
 * PROA_HEAD_ROWS. Tokens before that position are known or drafted, and stay so until the rows are sampled. Logits
 * processors, if the request has any, write to `processed`, which may be raw. */
void proa_sampler_row_make(proa_engine *e, int64_t i, proa_seq *seq, int64_t position, const float *raw,
                           float *processed);
/* The error of a sequence whose token at this position could not be sampled: `why`, or what its constraint says. */
void proa_fail_sampling(const proa_seq *seq, int64_t position, const proa_err *why);
/* Runs the logits processors of the first `count` of these rows, which have `vocab` columns, and samples them. */
void proa_sampler_rows_run(proa_engine *e, int64_t count, int64_t vocab);
/* One step of the beam search from beam_ids and beam_logprobs. False: the search has ended. Otherwise beam_token and
 * beam_parent say how each beam goes on. */
bool proa_advance_beams(proa_engine *e, proa_engine_request *req);
/* Emits a sequence's next token, and ends the sequence if it was the last one. The token counts as known already. */
void proa_append_token(proa_engine *e, const proa_draw *draw, const proa_sample *sample);

/* async_step.c: steps whose tokens are sampled where the model runs. */
/* Sets the mode, and how many steps may be in flight. */
void proa_async_steps_init(proa_engine *e);
/* Sets samples_on_device, choice and entries; called once, by submit. */
void proa_async_step_prepare(const proa_engine *e, proa_engine_request *req);
/* At admission: reserves room for the request's logits processor entries. If there is none, the host samples its
 * tokens. */
void proa_async_step_reserve(proa_engine *e, proa_engine_request *req);
/* After the decoder pass: submits the sampling of all rows that can be sampled on the device, and removes them from
 * step.logits_requests. If a mask of a row depends on a token that only the device knows, sampling waits
 * (async.waits) until this is called again, after the step before was completed. */
void proa_async_step_submit(proa_engine *e);
/* Waits for the oldest in-flight step and gives its tokens to their requests. */
void proa_async_step_complete(proa_engine *e);
/* The request ends or is preempted: in-flight steps and fetched logits forget it. */
void proa_async_step_detach(proa_engine *e, const proa_engine_request *req);

/* prefix_cache.c: keys and values that requests share over time. */
/* Makes the namespace of a request that may share; called once, by submit. */
void proa_prefix_cache_prepare(const proa_engine *e, proa_engine_request *req, const proa_request *r);
/* The namespace in which a request of this engine would find its prompt's pages, which the caller releases; NULL: they
 * are not known before it is submitted. Any thread. */
proa_kv_namespace *proa_prefix_cache_space(proa_engine *e, const proa_request *r);
/* Before a chunk of its prompt is added to a batch: cached pages that continue the sequence become its own, and its
 * length grows. False: the next one is being read from a folder, and the sequence takes no part in this pass. */
bool proa_prefix_cache_reuse(proa_engine *e, proa_seq *seq);
/* After a chunk was submitted, and before the sequence releases its pages: its full pages are given to the tree. */
void proa_prefix_cache_keep(proa_engine *e, proa_seq *seq);
/* The same for the pages of an encoder's input. */
typedef enum proa_prefix_input {
    PROA_PREFIX_INPUT_MISS,
    PROA_PREFIX_INPUT_HIT, /* all of them were cached, and no pass is needed */
    PROA_PREFIX_INPUT_WAIT /* some are being read */
} proa_prefix_input;
proa_prefix_input proa_prefix_cache_reuse_input(proa_engine *e, proa_engine_request *req);
void proa_prefix_cache_keep_input(proa_engine *e, proa_engine_request *req);
/* The device has failed: nothing is reused from now on. */
void proa_prefix_cache_distrust(proa_engine *e);
/* Once a step: pages on their way to the folder and back move on. */
void proa_prefix_cache_poll(proa_engine *e);
/* There were no rows to run. If sequences wait for pages of the folder, or there is nothing to do but to write pages,
 * it returns when some were read or written. */
void proa_prefix_cache_wait(proa_engine *e);
/* The engine closes: what is yet to be written is written, within PROA_PREFIX_FLUSH_MS. */
void proa_prefix_cache_flush(proa_engine *e);

/* speculate.c: draft tokens, of the proposers in proposer.h. */
/* At submit: chooses the request's proposer, and allocates what it needs. INVALID names the option. */
PROA_MUST_CHECK proa_status proa_speculate_prepare(const proa_engine *e, proa_engine_request *req, proa_err *err);
/* proa_proposer.prepare of those who draft trees. A tree's rows have histories of their own, which logits processors
 * and grammars do not get: with those the drafts are chains. */
void proa_speculate_prepare_tree(const proa_engine *e, proa_engine_request *req);
/* Arrays and what is known at first; when the engine opens. */
void proa_speculate_init(proa_engine *e);
void proa_speculate_release(proa_engine_request *req); /* what prepare took for its sequences */
/* For proposers with keys and values of their own in the sequence's pages: pages for these rows, from draft_length on,
 * of a draft of so many tokens. False: there are too few. */
bool proa_speculate_take_pages(proa_engine *e, proa_seq *seq, int32_t size);
/* While a step is in flight: whether the next pass waits for its tokens, because it would have draft tokens then that
 * are worth the wait, or because draft tokens are in flight. */
bool proa_speculate_waits(proa_engine *e);
/* Before the arrays of a pass are built: drafts tokens for sequences that decode. */
void proa_speculate_propose(proa_engine *e);
/* A decoder pass was submitted: proposers run their part of it. Before lengths are advanced. */
void proa_speculate_follow(proa_engine *e);
/* Whether the token that a row gives for this position is the sequence's next one: all draft tokens before it were
 * right. */
bool proa_speculate_row_counts(const proa_seq *seq, int64_t position, int32_t node);
/* The token at this position is known now; compares it with the draft token there. After `known` was raised, before the
 * token is appended. */
void proa_speculate_sampled(proa_engine *e, proa_seq *seq, int64_t position, int32_t id);
/* The sequence ends; draft tokens after its last token are dropped. */
void proa_speculate_end(proa_engine *e, proa_seq *seq);
/* A pass with that many rows, all of which were sampled, has just ended with its sampling. It was submitted at
 * begin_ns. */
void proa_speculate_step_time(proa_engine *e, int64_t rows, int64_t begin_ns);

/* encode.c: passes of the encoder. */
bool proa_encode_has_encoder(const proa_engine *e);
/* Submits a pass over waiting inputs (a second one when many rows wait on a device), and completes the oldest pass. */
void proa_encode_step(proa_engine *e);
/* The request ends: passes in flight forget it. */
void proa_encode_detach(proa_engine *e, const proa_engine_request *req);

/* queue.c: lists of requests, and what arrives. */
void proa_request_list_init(proa_request_list *list);
void proa_request_list_push(proa_request_list *list, proa_engine_request *req);
void proa_request_list_push_first(proa_request_list *list, proa_engine_request *req);
proa_engine_request *proa_request_list_pop(proa_request_list *list);
/* Moves requests for which moves() is true to the end of another list, in order; returns how many. */
int32_t proa_request_list_split(proa_request_list *list, proa_request_list *to,
                                bool (*moves)(void *arg, proa_engine_request *req), void *arg);
/* Takes over what was submitted; requests that were cancelled or are overdue end; admits waiting ones. False: there
 * were none. */
bool proa_queue_update(proa_engine *e);

/* clients.c: waiting requests. Take and drop under shared.lock: the queue of a client's requests of one priority. */
proa_client_queue *proa_client_queue_take(proa_engine_shared *shared, const char *client, int32_t priority);
void proa_client_queue_drop(proa_engine_shared *shared, proa_client_queue *queue);
void proa_client_queues_free(proa_engine_shared *shared);
void proa_waiting_push(proa_waiting *w, proa_engine_request *req);
/* A request that was preempted: it is first among those of its priority. */
void proa_waiting_return(proa_waiting *w, proa_engine_request *req);
/* Whose turn it is; it stays until it is popped. NULL: none waits. */
proa_engine_request *proa_waiting_first(proa_waiting *w);
proa_engine_request *proa_waiting_pop(proa_waiting *w);
void proa_waiting_split(proa_waiting *w, proa_request_list *ended,
                        bool (*ends)(void *arg, proa_engine_request *req), void *arg);

/* admission.c: which requests run, what they hold, and preemption. Admits waiting requests. */
void proa_admission_step(proa_engine *e);
/* Before a pass: each running request is promised pages for its known tokens. Requests are preempted if there are too
 * few. */
void proa_admission_reserve(proa_engine *e);
/* After the last row of a prompt was submitted: the other sequences go on from the same pages. */
void proa_admission_fork(proa_engine *e, proa_engine_request *req);
/* The sequence runs no further: its pages are returned. */
void proa_admission_end_seq(proa_engine *e, proa_seq *seq);
/* Emits DONE. The request is in no list any more; it may have been running or waiting. */
void proa_admission_finish(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error);
/* Pages for tokens [from, to) of a table. Cannot fail: they were promised. */
void proa_admission_take_pages(proa_engine *e, proa_page_table *table, int64_t from, int64_t to);

/* Pages that may be promised or taken beside those that are promised or held already. */
int64_t proa_admission_pages_available(const proa_engine *e);

/* Whether the logits (or hidden states) of every prompt row are needed, not only of the last one. */
bool proa_request_wants_all_rows(const proa_engine_request *req);

/* batch.c: the arrays of a pass. Empty them; begin a span; add a row to it; the batch as the model takes it. */
void proa_batch_clear(proa_engine *e);
void proa_batch_add_span(proa_engine *e, const proa_page_table *table, int64_t rows, int64_t context,
                         const proa_page_table *cross, int64_t cross_context);
/* length: see proa_rope_length */
void proa_batch_add_row(proa_engine *e, int32_t id, int64_t position, int64_t length);
/* The next row will be row `index` of a prompt table. Rows that follow each other in both are uploaded together. */
void proa_batch_add_virtual(proa_engine *e, const proa_prompt_table *table, int64_t index);
proa_batch proa_batch_of_step(const proa_engine *e);
/* Whether the sequence has tokens to run. A token that the host has not received may turn out to be an end token, which
 * costs one surplus row; that it reaches the length limit is known beforehand. */
bool proa_batch_has_rows(const proa_engine *e, const proa_seq *seq);
/* A decoder's pass: each decoding sequence, then chunks of prompts within the token budget. */
void proa_batch_build(proa_engine *e);
/* The batch was submitted: its rows are in the pages from now on. */
void proa_batch_advance(proa_engine *e);

/* job.c: work of callers between two steps. Runs run(arg) while nothing is in flight, on the engine's thread if there
 * is one, else on this one, and returns after it. INVALID on the engine's thread itself, that is in a callback. */
PROA_MUST_CHECK proa_status proa_engine_job_run(proa_engine *e, void (*run)(void *arg), void *arg, proa_err *err);
void proa_jobs_init(proa_engine_shared *shared);
void proa_jobs_release(proa_engine_shared *shared);
/* Whether a pass was submitted whose results have not arrived. */
bool proa_jobs_in_flight(const proa_engine *e);
/* Whether jobs wait: no further pass is submitted ahead. */
bool proa_jobs_wait(const proa_engine *e);
/* This thread runs a step of an engine, whose callbacks may not call proa_engine_job_run; NULL: none any more. Returns
 * what it ran before. */
const proa_engine *proa_jobs_enter(const proa_engine *e);
/* Once a step: runs jobs that wait, if nothing is in flight. True: there were some. */
bool proa_jobs_step(proa_engine *e);

/* scheduler.c: one step of the engine. False: there was nothing to do. */
bool proa_sched_step(proa_engine *e);
/* A decoder's pass of this shape has ended; it was submitted at begin_ns. NULL: what ended cannot be timed. */
void proa_sched_pass_ended(proa_engine *e, const proa_step_shape *shape, int64_t begin_ns);
/* Called when results have arrived, before they are used. If the device has failed, all running requests end with
 * its error, and so does `req`, which may be in no list (NULL: none). */
void proa_sched_check_device(proa_engine *e, proa_engine_request *req);
/* Requests whose end was decided leave the running list. */
void proa_sched_retire(proa_engine *e);

#endif
