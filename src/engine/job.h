/* SPDX-License-Identifier: Apache-2.0
 * job.h - a request on its way through the engine, and the engine itself. Private to src/engine.
 * Owner:   the engine owns its jobs from submit to DONE.
 * Threads: `lock` guards the inbox, the list of live jobs and the published statistics; all else belongs to the
 *          stepping thread. */
#ifndef PROA_ENGINE_JOB_H
#define PROA_ENGINE_JOB_H

#include "engine/decode/beam.h"
#include "engine/decode/contrastive.h"
#include "engine/logits.h"
#include "engine/memory.h"
#include "base/options.h"
#include "engine/pages.h"
#include "engine/decode/sampler.h"
#include "engine/decode/stop.h"
#include <pthread.h>
#include <stdatomic.h>

typedef enum proa_phase {
    PROA_PHASE_WAITING, /* not admitted: holds no pages */
    PROA_PHASE_ENCODE,  /* its encoder input is to be run, */
    PROA_PHASE_ENCODED, /* is in a pass whose answers the host has not */
    PROA_PHASE_PROMPT,  /* its decoder prompt is being run, in chunks */
    PROA_PHASE_DECODE   /* one row for each sequence and step */
} proa_phase;

/* One of the sequences of a request. All that run have the same length, since they started together. */
typedef struct proa_seq {
    int32_t token; /* the one to be run next */
    int32_t from; /* which of the chosen ids on the device it is, while the host does not know it; -1: the host does */
    int32_t *ids; /* [new_max] generated so far */
    int64_t count;
    double logprob_sum; /* of these, when they are known */
    proa_finish finish; /* NONE while it runs */
    proa_detok *detok;  /* NULL without a tokenizer, and for beams */
    proa_stop stop;
    proa_buf piece, shown; /* what the last token made; all text that was shown, if results will want it */
} proa_seq;

typedef struct proa_job proa_job;
struct proa_job {
    proa_job *next;                   /* in the inbox, the waiting list or the running list */
    proa_job *live_next, **live_link; /* in the list that cancel searches; what points to this one there */
    uint64_t id;
    proa_task task;
    proa_options options; /* defaults put in; lists in the arena */
    proa_arena arena;
    proa_event_fn *on_event;
    void *arg;
    int32_t *input; /* encoder kinds: the encoder's ids */
    int64_t input_count;
    float *embedded; /* [input_count][hidden] in place of the input's ids; or NULL */
    float *encoded;  /* task ENCODE: [input_count][hidden] of the answer */
    int32_t *prompt; /* the decoder's first ids */
    int64_t prompt_count;
    atomic_bool cancelled;

    proa_phase phase;
    int32_t width;     /* rows of a step: sequences, beams or candidates, which share the prompt's pages */
    int32_t sequences; /* of `seq`: 1 or n; 0 for beams */
    int32_t slot;      /* first of `width` slots (tables), while admitted */
    int64_t reserved;  /* pages that it may come to use */
    int64_t length;    /* tokens whose keys and values are in its pages, of each sequence that runs */
    int64_t in_step;   /* rows of its prompt that the step has */
    int64_t new_tokens, new_max; /* of all sequences together; of each at most */
    int32_t running;             /* sequences that have not ended */
    proa_finish ending;          /* decided in this step, carried out at its end */
    proa_err error;              /* why, when ending is ERROR */
    bool chosen_there;           /* its tokens can be chosen where the model runs (flight.c), */
    proa_choice choice;          /* so, and by a random number of each's own, */
    int64_t pairs;               /* behind edits of so many pairs of all its sequences */
    int32_t from;                /* of beams, as of a sequence: the first one's */
    proa_logits *logits;         /* NULL: the options change no logits */
    proa_seq *seq;               /* [sequences] */
    proa_logprob *top;           /* [top_logprobs] for each sequence, or each of PROA_HEAD_ROWS prompt rows */
    proa_beam *beam;             /* and what goes in and out of it, M candidates for each of `width` rows: */
    int64_t candidates;          /* M */
    int32_t *beam_ids;           /* [width][M] */
    float *beam_values;          /* [width][M] */
    int32_t *beam_parent, *beam_token; /* [width]; beam_token is what each beam runs next */
    int32_t *path,
        *path_other; /* [width][new_max + 1] tokens before each row, for the logits' steps; NULL without them */
    int64_t depth;   /* of these */
    proa_contrastive *contrast; /* contrastive search: uses the beams' arrays for its candidates */
    float *probs, *hidden;      /* [width], [width][hidden]: of the candidates that run */
    int64_t submitted_ns, admitted_ns, first_ns;
};

typedef struct proa_job_list {
    proa_job *first, **last;
    int32_t count;
} proa_job_list;

/* What is asked of the head for one row of the step. */
typedef struct proa_ask {
    proa_job *job;
    int32_t row;
    int32_t index; /* position in the prompt, or beam or sequence */
} proa_ask;

/* One token to be drawn from a row of the head; many are drawn at once, spread over the pool. */
typedef struct proa_draw {
    proa_job *job;
    int32_t sequence;
    const float *raw, *hidden; /* the head's row, and what it read */
    proa_options options;      /* the job's, with this sequence's seed */
    proa_err err;
} proa_draw;

/* One token that the device chooses. job NULL: it has gone meanwhile. */
typedef struct proa_due {
    proa_job *job;
    int32_t sequence;
} proa_due;

/* A step that was launched, whose tokens the host has not yet seen. */
typedef struct proa_flight {
    proa_due *due; /* [sequences_max] */
    int64_t count;
    bool logits;         /* the chosen tokens' own were asked for, */
    int32_t top;         /* and so many of the likeliest */
    proa_search *search; /* [sequences_max / 2 + 1] steps of beams, */
    proa_job **searcher; /* and whose; NULL: it has gone */
    int64_t searches;
    int ticket; /* for proa_model_chosen */
} proa_flight;

/* Where tokens are chosen, if all of a step's can be chosen there, and when the host learns of them. */
typedef enum proa_ahead {
    PROA_AHEAD_NONE,  /* on the host */
    PROA_AHEAD_LANDS, /* on the device; at once */
    PROA_AHEAD_FLIES  /* on the device; when the next step is launched */
} proa_ahead;

/* An input of a pass of the encoder. job NULL: it has gone meanwhile. */
typedef struct proa_input {
    proa_job *job;
    int64_t row; /* its first one of the pass */
} proa_input;

/* A pass of the encoder that was launched, whose answers the host has not yet. */
typedef struct proa_encoding {
    proa_input *input; /* [sequences_max] */
    int64_t count;
    bool asked;     /* the model was asked to harvest, */
    int32_t ticket; /* with this */
    bool held;      /* the host asks the model for more, so no other pass comes between */
} proa_encoding;

struct proa_engine {
    proa_pool *pool;
    proa_device *device;
    proa_model *model;
    proa_tokenizer *tokenizer; /* NULL: ids only */
    proa_options defaults;     /* of generation_config.json */
    proa_arena arena;
    proa_sizes sizes;
    proa_memory memory;
    proa_pages pages;
    proa_kv *kv;                    /* [kv_layers] */
    proa_sampler_scratch *samplers; /* [threads] */
    proa_draw draws[PROA_HEAD_ROWS];
    proa_sampler_row draw_rows[PROA_HEAD_ROWS];
    int64_t draw_count;
    float *changed; /* [PROA_HEAD_ROWS][vocab] rows that a request's steps change; touched only then */

    /* tables: slots of `table_cap` entries; each sequence has two (now and next step's, for beams) */
    int32_t *table_memory;
    int64_t table_cap;
    proa_table *self, *spare, *cross; /* [sequences_max] */
    bool *slot_used;                  /* [sequences_max]; */
    int32_t slots_full;               /* all below are */
    int64_t pages_reserved;

    /* the step, all [rows_max] */
    int32_t *ids, *positions;
    int32_t *from; /* which of the chosen ids on the device a row runs; -1: ids says */
    bool any_from;
    proa_pending *pending; /* beams whose last step the host has not seen */
    int64_t pending_count;
    proa_span *self_spans, *cross_spans; /* [sequences_max] */
    proa_ask *asks;
    int32_t *ask_rows;
    int64_t rows, spans, ask_count;
    proa_given *given; /* of the encoder's step */
    int64_t given_count;
    proa_encoding encoding[2]; /* the older one first */
    int32_t encodings;
    float lse[PROA_HEAD_ROWS];
    int32_t *top_ids; /* [PROA_HEAD_ROWS][PROA_TOP_MAX] */
    float *top_logits;
    float prompt_logprobs[PROA_HEAD_ROWS];
    int64_t answered; /* rows of the head before the one in hand */

    proa_ahead ahead;
    proa_flight flight[2]; /* the older one first */
    int32_t flights;
    proa_choice *choices;                /* [sequences_max] */
    proa_edits *edits;                   /* [sequences_max] */
    proa_edit *pairs;                    /* [PROA_EDIT_PAIRS_MAX], touched only where they are used */
    int32_t *edit_last;                  /* [sequences_max] */
    int64_t pairs_count, pairs_reserved; /* of the step; what running jobs may come to have */
    bool any_drawn, any_edits;           /* some of these are not the likeliest; of rows that are edited */

    proa_job_list waiting, running;

    pthread_mutex_t lock;
    pthread_cond_t work;
    proa_job_list inbox;
    proa_job *live;
    uint64_t next_id;
    proa_stats stats;   /* published after each step */
    proa_stats now;     /* the stepping thread's own */
    atomic_bool called; /* something was submitted, or the thread is to stop */
    pthread_t thread;
    bool thread_runs, stop;
};

void proa_job_free(proa_job *job);
void proa_job_list_init(proa_job_list *list);
void proa_job_list_push(proa_job_list *list, proa_job *job);
proa_job *proa_job_list_pop(proa_job_list *list);

/* deliver.c: events. The job was admitted. */
void proa_deliver_begin(proa_job *job);
/* A token: its text is made, stop rules are applied; sets seq->finish when it ends. */
void proa_deliver_token(const proa_draw *draw, const proa_sample *sample);
void proa_deliver_rows(proa_job *job, const float *rows, const float *pooled, int64_t first, int64_t count,
                       int64_t columns);
void proa_deliver_prompt(proa_job *job, const float *logprobs, int64_t first, int64_t count);
/* Sends DONE and frees the job; it is in no list any more and holds no pages. */
void proa_deliver_done(proa_engine *e, proa_job *job, proa_finish finish, const proa_err *error);

/* answer.c: runs the head over the step's asks and gives each job its due; sets job->ending. */
void proa_answer_asks(proa_engine *e);
/* After the prompt: all sequences share its pages. */
void proa_answer_share(proa_engine *e, proa_job *job);
/* The beams' candidates are there: a step of the search. False: it has ended. beam_token and beam_parent have what comes next. */
bool proa_answer_beams(proa_engine *e, proa_job *job);
/* Delivers a sequence's next token, and ends the sequence if it was the last. */
void proa_answer_token(proa_engine *e, const proa_draw *draw, const proa_sample *sample);

/* flight.c: steps whose tokens are chosen where the model runs. */
proa_ahead proa_flight_mode(const proa_device *d);
/* Sets chosen_there and choice; once, by submit. */
void proa_flight_prepare(proa_job *job);
/* It is admitted: has room for its pairs, or the host chooses its tokens. */
void proa_flight_reserve(proa_engine *e, proa_job *job);
/* Whether all tokens of a step with the running jobs can be. */
bool proa_flight_fits(const proa_engine *e);
/* The step's pass was launched: now the choice of those tokens that can be chosen there. What else was asked stays. */
void proa_flight_launch(proa_engine *e);
/* Waits for the oldest flight and delivers its tokens. */
void proa_flight_land(proa_engine *e);
/* The job goes. */
void proa_flight_forget(proa_engine *e, const proa_job *job);

/* encode.c: passes of the encoder. */
bool proa_encode_has(const proa_engine *e);
/* One pass over what waits for it, and the answers of one; of a device, many rows that wait are launched before those of the
 * pass before are there. */
void proa_encode_step(proa_engine *e);
/* The job goes. */
void proa_encode_forget(proa_engine *e, const proa_job *job);

/* step.c */
bool proa_step_run(proa_engine *e);
/* Asked when a step's results are there, before they are believed: if the device has failed at something, all that runs ends with
 * its words, and so does `job`, which may be in no list (NULL: none). */
void proa_step_ask_device(proa_engine *e, proa_job *job);
/* Jobs whose end was decided leave; prompts that are done go on decoding. */
void proa_step_leave(proa_engine *e);
/* The batch that the next pass runs: none; one more span, of rows that are added behind it; all of it. */
void proa_step_clear(proa_engine *e);
void proa_step_add_span(proa_engine *e, const proa_table *table, int64_t rows, int64_t context,
                        const proa_table *cross, int64_t cross_context);
void proa_step_add_row(proa_engine *e, int32_t id, int64_t position);
proa_batch proa_step_batch(const proa_engine *e);
/* Makes room for the rows at [length, length + rows) of a sequence; admission promised the pages. */
void proa_step_take_pages(proa_engine *e, proa_table *table, int64_t length, int64_t rows);
/* Gives back a running job's pages and slots. */
void proa_step_drop(proa_engine *e, proa_job *job);

#endif
