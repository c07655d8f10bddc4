/* SPDX-License-Identifier: Apache-2.0
 * sequence.h - inside the schedulers: sequences of requests and what the server adds to their requests: control tensors
 * (START, END, READY, CORRID) and states that it keeps between them. For sequence.c and sequence_input.c.
 * Owner:   a sequence belongs to the scheduler from its START to its end; specs are in model->arena, their buffers are
 *          released by proa_sequence_inputs_close.
 * Threads: under the scheduler's lock, but for `states`: they belong to the sequence's running request. */
#ifndef PROA_SERVE_SCHED_SEQUENCE_H
#define PROA_SERVE_SCHED_SEQUENCE_H

#include "serve/sched/form.h"
#include "serve/sched/sched.h"

typedef struct proa_sequence_control {
    const char *name;
    Inference__ModelSequenceBatching__Control__Kind kind;
    proa_type type;
    proa_tensor values[2]; /* of false and true; not of CORRID */
} proa_sequence_control;

typedef struct proa_kept_state {
    const char *input, *output;
    proa_tensor first; /* its initial value */
    bool returned;     /* the output is also returned to the client */
} proa_kept_state;

typedef struct proa_sequence {
    struct proa_sequence *next_same;   /* of the table: same hash */
    struct proa_sequence *next, *prev; /* of the backlog */
    uint64_t id;
    char *name;                        /* of a string id, or NULL */
    struct proa_sequence_place *place; /* NULL: in the backlog */
    proa_infer *head, *tail;           /* waiting, linked by next and ticket.prev */
    int64_t last_ns;                   /* when its last request arrived */
    int64_t expires_ns;                /* leaves the backlog; INT64_MAX: never */
    bool listed;                       /* in the table: more requests may come */
    bool running;                      /* one of its requests is executed */
    proa_tensor states[];              /* [states_count] */
} proa_sequence;

/* Where a sequence stays: a row of the batches of one instance, or one of its candidates. */
typedef struct proa_sequence_place {
    proa_sequence *sequence; /* NULL: free */
    int instance_slot, row;
} proa_sequence_place;

typedef struct proa_sequences {
    proa_scheduler *scheduler;
    bool oldest, iterative, batched;
    int rows;                    /* places of an instance */
    proa_sequence_place *places; /* [rows][slots]: low rows are taken first */
    int64_t idle_ns, delay_ns;
    float utilization;   /* share of an instance's rows that need not wait */
    proa_form_rule rule; /* of the oldest strategy; direct uses only `equal` */
    proa_sequence_control *controls;
    int controls_count;
    proa_kept_state *states;
    int states_count;
    uint64_t next_id; /* of iterative ones */
    proa_sequence **table;
    proa_sequence *backlog, *backlog_last;
    proa_infer **candidates; /* [rows] */
} proa_sequences;

/* ---- sequence_input.c ---- */

proa_status proa_sequence_inputs_open(proa_sequences *q, proa_err *err);
void proa_sequence_inputs_close(proa_sequences *q);
/* Before execution: controls and states of r become its inputs. START begins with the first states. */
void proa_sequence_prepare(proa_sequences *q, proa_infer *r);
/* A request that fills a row of a batch: the inputs of `like`, READY false. Its replies are dropped. */
proa_infer *proa_sequence_filler(proa_sequences *q, const proa_infer *like);
/* Takes the states out of a reply. */
void proa_sequence_take_states(proa_sequences *q, proa_sequence *sequence, proa_reply *reply);

#endif
