/* SPDX-License-Identifier: Apache-2.0
 * session.h - what every command that opens a model shares: its options, the open engine, Ctrl-C.
 * Owner:   the caller closes with proa_session_close.
 * Threads: main's; the engine's own workers sleep between steps.
 * Way in:  proa_session_open. */
#ifndef PROA_CLI_SESSION_H
#define PROA_CLI_SESSION_H

#include "cli/args.h"
#include "cli/progress.h"
#include "proa/proa.h"

/* The first field of every command's options struct, so that the shared tables' offsets hold for all. */
typedef struct proa_common {
    const char *model; /* operand MODEL */
    const char *device, *dtype, *quant, *kv_dtype, *prefix_cache, *prefix_host_memory, *prefix_dir,
        *prefix_dir_size;
    int64_t threads, tensor_parallel, pipeline_parallel, seed;
    bool json;
    int64_t kv_tokens, sequences, step_tokens, prompt_rows, draft_tokens;
    const char *speculation, *draft_model;
    const char *expert_parallel; /* on, off */
    const char *rank_sums;       /* terms, whole */
    double kv_share, prompt_slowdown;
    const char *policy, *ranks;
    proa_arg_list lora; /* NAME=PATH */
    int64_t lora_slots, lora_max, lora_rank;
    const char *lora_dtype;
} proa_common;

extern const proa_arg_table proa_common_args; /* of every command */
extern const proa_arg_table proa_engine_args; /* of those that run an engine */
/* Two rows: the operand, and the option that replaces it. */
#define PROA_MODEL_ARG                                                                                       \
    {"MODEL", PROA_ARG_OPERAND, offsetof(proa_common, model),                                                \
     .help =                                                                                                 \
         "a folder of Hugging Face, OpenNMT-py or FasterTransformer, a .gguf file, or ORG/NAME on a hub",    \
     .min = PROA_ARG_MODEL},                                                                                 \
    {                                                                                                        \
        "synthetic", PROA_ARG_OPERAND_ALIAS, offsetof(proa_common, model),                                   \
            .value = "NAME",                                                                                 \
            .help = "instead of MODEL: random weights with the shapes of NAME, "                             \
                    "on a GPU (names: docs/gpu.md)"                                                          \
    }

typedef struct proa_session {
    proa_engine *engine;
    proa_info info;
    double open_s;
} proa_session;

/* Fills what proa_engine_open takes. UNSUPPORTED for a device that this build does not have. Adapters are in static
 * memory: one call at a time. */
PROA_MUST_CHECK proa_status proa_session_options(proa_engine_options *out, const proa_common *common,
                                                 proa_err *err);
/* Sets the number of sequences unless the user did: enough for a beam search of this width and length, and
 * more if there are many prompts. max_tokens 0 (until the end) is not included: use --kv-tokens. */
void proa_session_room(proa_engine_options *options, int64_t beams, int64_t max_tokens, bool many);
PROA_MUST_CHECK proa_status proa_session_open(proa_session *session, const proa_common *common,
                                              const proa_engine_options *options, proa_err *err);
void proa_session_close(proa_session *session);

/* From now on the first SIGINT or SIGTERM is only recorded; a second one ends the process. Writes to a
 * closed pipe fail instead of ending it. */
void proa_interrupt_watch(void);
bool proa_interrupted(void);

/* Measured rate at which all threads together read memory, bytes a second. Takes about a second; 0 if there
 * is no memory for it. */
double proa_session_bandwidth(const proa_common *common);

#endif
