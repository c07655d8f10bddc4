/* SPDX-License-Identifier: Apache-2.0
 * engine.h - the engine itself: the model, its memory, and the state of each part of the scheduler. Private to
 * src/engine.
 * Owner:   proa_engine_open makes it, proa_engine_close frees it.
 * Threads: what the first two groups have never changes after open. `shared` is for all threads, under its lock;
 *          adapters, sessions and chat have locks of their own. Everything else belongs to the stepping thread.
 * Way in:  each group's header; sched/scheduler.c has the diagram of a step. */
#ifndef PROA_ENGINE_ENGINE_H
#define PROA_ENGINE_ENGINE_H

#include "engine/chat.h"
#include "engine/memory.h"
#include "engine/ranks/rank_set.h"
#include "engine/ranks/recovery.h"
#include "engine/sched/admission.h"
#include "engine/sched/async_step.h"
#include "engine/sched/batch.h"
#include "engine/speculate/draft_model.h"
#include "engine/sched/inflight.h"
#include "engine/pacing/pacing.h"
#include "engine/sched/process_logits.h"
#include "engine/speculate/speculate.h"
#include "engine/shared.h"
#include "grammar/grammar.h"
#include "kv/state_slots.h"

typedef struct proa_eagle_proposer proa_eagle_proposer;
typedef struct proa_medusa_proposer proa_medusa_proposer;

struct proa_engine {
    /* the model, and where it runs */
    proa_pool *pool;
    proa_device *device;
    proa_model *model;
    proa_rank_set ranks;            /* rank 0 has device and pool */
    proa_tokenizer *tokenizer;      /* NULL: ids only */
    proa_grammars *grammars;        /* of constrained output; NULL without a tokenizer */
    proa_options defaults;          /* of generation_config.json */
    int64_t length_max, length_min; /* of a decoder: its max_length and min_length, prompt included; 0: none */

    /* sizes and memory */
    proa_sizes sizes;
    char plan[PROA_PLAN_TEXT]; /* sizes in words */
    proa_memory memory;
    proa_arena arena; /* lists of the defaults, and the arrays of all structs below */

    /* keys and values */
    proa_kv_pages pages;          /* of rank 0 */
    proa_kv *kv;                  /* [ranks][kv_layers] */
    proa_state_slots states;      /* recurrent ones, one for each of `slots`; zero: the model has none */
    proa_prefix_tree prefixes;    /* zero: there is no prefix cache */
    proa_state_cache kept_states; /* recurrent ones behind its pages; zero: none */
    proa_host_cache host_cache;   /* its lower levels; of capacity 0: there are none */
    bool prefix_broken;           /* the device has failed: what is in the tree may be wrong */
    bool writes_left;             /* pages are yet to be written to the folder */
    bool reads_waited;     /* a sequence would be in this pass if a page of the folder were read already */
    int64_t session_pages; /* of all proa_decoder_session; a page of several sequences counts for each */
    int64_t handoff_pages; /* that handoffs from and to this engine hold; a page of several counts for each */
    proa_kv_handoff *handoffs; /* to this engine, under way: the oldest first */

    /* requests, and steps */
    proa_waiting waiting;      /* not admitted, */
    proa_request_list running; /* admitted */
    proa_slots slots;
    proa_step_arrays step;
    proa_head_buffers head;
    proa_sampler_scratch *samplers; /* [threads] */
    proa_async_steps async;
    proa_encoder_passes encoder;
    proa_prompt_pacing pacing;
    proa_speculation speculation;
    proa_draft_model *draft_model; /* NULL: none */
    proa_medusa_proposer *medusa;  /* likewise */
    proa_eagle_proposer *eagle;    /* likewise */
    proa_stats now;                /* its own counters, published to shared.stats after each step */
    proa_recovery recovery;

    /* with locks of their own */
    proa_adapters adapters;
    proa_sessions sessions;
    proa_engine_chat_template chat;
    proa_engine_shared shared;
};

static inline bool proa_engine_has_encoder(const proa_engine *e)
{
    return e->model->arch->kind != PROA_KIND_DECODER;
}

static inline bool proa_engine_has_decoder(const proa_engine *e)
{
    return e->model->arch->kind != PROA_KIND_ENCODER;
}

#endif
