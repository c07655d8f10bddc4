/* SPDX-License-Identifier: Apache-2.0
 * call.h - what all ranks run when rank 0 is called: a function of model.h with its arguments, as a struct and as a
 * message. Each rank reads the same message, be it a thread, a process of this host or one of another host.
 * Owner:   a call that was read points into its message. Threads: those of the ranks. */
#ifndef PROA_MODEL_CALL_H
#define PROA_MODEL_CALL_H

#include "comm/rank_message.h"
#include "model/model.h"

typedef enum proa_rank_call_kind {
    PROA_CALL_END,   /* no call follows */
    PROA_CALL_LOAD,  /* proa_model_load; has a result in each rank */
    PROA_CALL_PAGES, /* takes the memory of `count` KV pages (proa_rank_hooks); has a result */
    PROA_CALL_COPY,  /* copies tokens within KV pages (proa_rank_hooks) */
    PROA_CALL_ENCODE,
    PROA_CALL_DECODE,
    PROA_CALL_HEAD,
    PROA_CALL_OUTPUTS, /* proa_model_send_encoder_outputs */
    PROA_CALL_ENCODED, /* proa_model_wait_encoder_outputs of outputs that stayed with the last stage */
    PROA_CALL_SAMPLE,
    PROA_CALL_SAMPLED, /* proa_model_wait_sampled of a deferred request on devices */
    PROA_CALL_TOP_K,
    PROA_CALL_ADAPTER,    /* one layer of proa_model_set_adapter */
    PROA_CALL_KEYS,       /* proa_prompt_table_write of some tokens */
    PROA_CALL_HIDDEN,     /* proa_states_hidden (states.h), of a pipeline */
    PROA_CALL_TAPPED,     /* proa_states_tapped */
    PROA_CALL_STATES,     /* memory for so many recurrent states; has a result */
    PROA_CALL_COPY_STATE, /* of one of them */
    PROA_CALL_CONNECT,    /* the ranks connect their devices (proa_rank_hooks); has a result */
    PROA_CALL_KINDS
} proa_rank_call_kind;

typedef struct proa_rank_call {
    proa_rank_call_kind kind;
    int32_t encoder_ticket; /* as in rank 0 */
    bool outputs_stay;      /* the same */
    bool hidden_wanted;
    proa_batch batch;     /* ENCODE, DECODE; KEYS: `rows` and the one span of `self` alone */
    const int32_t *rows;  /* [count] HEAD, TOP_K, HIDDEN, TAPPED; OUTPUTS: the first row of each input */
    int64_t count, k;     /* k: of TOP_K */
    int64_t outputs;      /* OUTPUTS: rows of the pass */
    bool again, in_place; /* of OUTPUTS; of HEAD: proa_model_head_to */
    proa_sample_request sample; /* SAMPLE */
    int32_t ticket;             /* SAMPLE, SAMPLED, ENCODED */
    proa_kv_copy copy;          /* COPY */
    proa_state_copy state_copy; /* COPY_STATE */
    int32_t adapter_slot;       /* ADAPTER */
    int64_t layer;
    const char *image; /* of the layer; NULL: the slot is empty */
    /* KEYS: keys and values of all heads and layers; those of layer l begin at l * values_stride and are [rows][2 * kv
     * heads * head dim], the keys before the values. */
    const float *values;
    int64_t values_stride;
    proa_taps taps; /* LOAD: those of rank 0, without memory */
    /* Of rank 0 only, not in the message. */
    bool others_only;                 /* rank 0 has done it already: LOAD of restarted ranks */
    const proa_kv *kv;                /* ENCODE, DECODE, KEYS: [kv_layers] */
    proa_view logits;                 /* result of HEAD, without in_place */
    proa_view states;                 /* result of HIDDEN and TAPPED, where rank 0 runs */
    float *to_logits, *to_hidden;     /* results of HEAD in place; NULL: not wanted */
    const proa_encoder_place *places; /* OUTPUTS: [count] */
    int32_t *top_ids;                 /* results of TOP_K */
    float *top_logits, *sums;
    proa_progress_fn *progress; /* LOAD */
    void *progress_arg;
} proa_rank_call;

/* Writes a call, or reads one. After reading, m->broken says that it is none of this version's. Page tables are sent as
 * far as the contexts of the spans reach. model: of the rank that writes or reads. */
void proa_rank_call_message(proa_rank_message *m, proa_rank_call *call, const proa_model *model);
/* Bytes of the calls of most steps: all but vectors in place of ids, what logits processors say of single tokens,
 * masks, and page tables of more than `pages` pages. */
int64_t proa_rank_call_room(const proa_model *model, int64_t pages);

#endif
