/* SPDX-License-Identifier: Apache-2.0
 * session.c - options that commands share, opening a model, Ctrl-C, and the measured read bandwidth. */
#include "cli/session.h"

#include "base/checked.h"
#include "base/limits.h"
#include "base/thread.h"
#include "engine/memory.h"
#include "kernels/peak.h"
#include <signal.h>
#include <string.h>

#define SEQUENCES_HELP                                                                                       \
    "sequences that run concurrently (each beam counts); 0: " PROA_STR(                                      \
        PROA_SEQUENCES_DEFAULT) ", on a GPU " PROA_STR(PROA_DEVICE_SEQUENCES) ", fewer where recurrent "     \
                                                                              "states would take too much "  \
                                                                              "memory"
#define AT(field) offsetof(proa_common, field)
static const proa_arg common_rows[] = {
    {"device", PROA_ARG_DEVICE, AT(device), 0, 0, "cpu|cuda[:N]", "cpu", "device to compute on"},
    {"dtype", PROA_ARG_CHOICE, AT(dtype), 0, 0, "auto|exact|f32|bf16|f16", "auto",
     "type of weights and arithmetic; auto: as stored, rounded to bf16 where the weights are and it is "
     "faster; exact: "
     "as stored, arithmetic in f32"},
    {"quant", PROA_ARG_CHOICE, AT(quant), 0, 0, "none|int8|fp8|int4", "none",
     "quantize the weights at load; fp8 on GPUs only"},
    {"threads", PROA_ARG_INT, AT(threads), 0, PROA_THREADS_MAX, "N", "0",
     "worker threads; 0: all CPUs allowed to this process"},
    {"seed", PROA_ARG_INT, AT(seed), 0, INT64_MAX, "N", "0", "seed of all random numbers"},
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL, "print JSON to standard output"},
    /* taken by the parser before it is stored */
    {"help", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL, "print this text"},
};
const proa_arg_table proa_common_args = PROA_ARG_TABLE("common options", common_rows);

static const proa_arg engine_rows[] = {
    {"kv-tokens", PROA_ARG_INT, AT(kv_tokens), 0, (int64_t)1 << 40, "N", "0",
     "size of the KV cache in tokens; 0: automatic"},
    {"kv-dtype", PROA_ARG_CHOICE, AT(kv_dtype), 0, 0, "auto|f32|bf16|f16|fp8", "auto",
     "type of the KV cache; fp8 on GPUs only"},
    {"kv-cache-free-gpu-mem-fraction", PROA_ARG_REAL, AT(kv_share), 0, 1, "X", "0",
     "without --kv-tokens: KV cache share of the memory that the weights leave"},
    {"tp", PROA_ARG_INT, AT(tensor_parallel), 0, PROA_RANKS_MAX, "N",
     "0", "ranks that share each layer (tensor parallelism), on as many GPUs; 0: one, or those of a packed folder"},
    {"pp", PROA_ARG_INT, AT(pipeline_parallel), 0, PROA_RANKS_MAX, "N", "0",
     "stages that have ranges of the layers (pipeline parallelism), each with the GPUs of --tp"},
    {"expert-parallel", PROA_ARG_CHOICE, AT(expert_parallel), 0, 0, "on|off", "off",
     "the ranks of --tp have different experts of a mixture, not a part of each"},
    {"rank-sums", PROA_ARG_CHOICE, AT(rank_sums), 0, 0, "terms|whole", NULL,
     "what these ranks add: terms of each sum (the default), or nothing: whole sums with the bits of one "
     "rank (CPU)"},
    {"ranks", PROA_ARG_CHOICE, AT(ranks), 0, 0, "thread|process|mpi", NULL,
     "what these ranks are: threads of this process, or processes of their own, spread over the NUMA nodes"},
    {"prefix-cache", PROA_ARG_CHOICE, AT(prefix_cache), 0, 0, "on|off", NULL,
     "requests that begin alike share cached keys and values (default on; off in bench)"},
    {"prefix-host-memory", PROA_ARG_TEXT, AT(prefix_host_memory), 0, 0, "auto|off|BYTES", NULL,
     "host memory for cached prefixes that the KV cache has no room for, such as 512M; auto: 4G on a GPU "
     "(default off)"},
    {"prefix-dir", PROA_ARG_TEXT, AT(prefix_dir), 0, 0, "FOLDER", NULL,
     "keep cached prefixes as files of a private folder, for later runs and other processes"},
    {"prefix-dir-size", PROA_ARG_TEXT, AT(prefix_dir_size), 0, 0, "BYTES", NULL,
     "its files at most, such as 512M; those used least recently go first (default 16G)"},
    {"sequences", PROA_ARG_INT, AT(sequences), 0, PROA_SEQUENCES_MAX, "N", "0", SEQUENCES_HELP},
    {"scheduler-policy", PROA_ARG_CHOICE, AT(policy), 0, 0, "max_utilization|guaranteed_no_evict", NULL,
     "when sequences start: with room for the tokens they have, and are preempted when room runs out (the "
     "default), or with room for all they can need"},
    {"step-tokens", PROA_ARG_INT, AT(step_tokens), 0, PROA_STEP_TOKENS_MAX, "N", "0",
     "token budget of one forward pass; 0: " PROA_STR(PROA_STEP_TOKENS_DEFAULT) ", on a GPU " PROA_STR(
         PROA_DEVICE_STEP_TOKENS) ", of encoders " PROA_STR(PROA_DEVICE_ENCODER_TOKENS)},
    {"prompt-rows", PROA_ARG_INT, AT(prompt_rows), 0, PROA_STEP_TOKENS_MAX, "N", "0",
     "rows of prompts at most beside decoding ones; 0: planned, and as --prompt-slowdown allows"},
    {"prompt-slowdown", PROA_ARG_REAL, AT(prompt_slowdown), 0, PROA_PROMPT_SLOWDOWN_MAX, "X", "0",
     "steps with prompts take at most X times as long as without; 0: 1.5, no bound with --prompt-rows or "
     "--step-tokens"},
    {"speculation", PROA_ARG_CHOICE, AT(speculation), 0, 0, "none|ngram|draft|medusa|eagle", NULL,
     "draft tokens, verified several at once; ngram: from the sequence's own text; draft, medusa, eagle: "
     "from "
     "what --draft-model holds (the default with it)"},
    {"draft-model", PROA_ARG_TEXT, AT(draft_model), PROA_ARG_MODEL, 0, "FOLDER", NULL,
     "a smaller model with the same vocabulary, which drafts tokens, or Medusa or EAGLE heads"},
    {"draft-tokens", PROA_ARG_INT, AT(draft_tokens), 0, PROA_TREE_MAX, "N", "0",
     "draft tokens of a sequence in a step at most; 0: " PROA_STR(PROA_DRAFT_MAX) ", in a tree " PROA_STR(
         PROA_TREE_MAX)},
    {"lora", PROA_ARG_LIST, AT(lora), PROA_ARG_MODEL, 0, "NAME=PATH", NULL,
     "load an adapter (a folder of PEFT: LoRA or a prompt table); may be given more than once"},
    {"lora-slots", PROA_ARG_INT, AT(lora_slots), 0, PROA_LORA_SLOTS_MAX, "N", "0",
     "different low-rank adapters in one batch; 0: as many as --lora loads"},
    {"lora-max", PROA_ARG_INT, AT(lora_max), 0, PROA_LORA_ADAPTERS_MAX, "N", "0",
     "adapters loaded at one time; 0: as many as --lora-slots"},
    {"lora-rank", PROA_ARG_INT, AT(lora_rank), 0, PROA_LORA_RANK_MAX, "N", "0",
     "largest rank of an adapter; 0: that of those loaded, at least 16"},
    {"lora-dtype", PROA_ARG_CHOICE, AT(lora_dtype), 0, 0, "auto|exact|fp8", "auto",
     "exact: adapters in 16 bits beside weights in fp8, too; auto: in fp8 as these are"},
};
const proa_arg_table proa_engine_args = PROA_ARG_TABLE("engine options", engine_rows);
#undef AT

/* NAME=PATH pairs. The names are cut out of copies. */
static proa_status read_adapters(proa_engine_options *out, const proa_arg_list *list, proa_err *err)
{
    static char names[PROA_ARG_LIST_MAX][PROA_LORA_NAME_MAX];
    static proa_adapter_source sources[PROA_ARG_LIST_MAX];
    for (int i = 0; i < list->count; i++) {
        const char *text = list->items[i], *equals = strchr(text, '=');
        size_t len = equals ? (size_t)(equals - text) : 0;
        if (!len || !equals[1] || len >= PROA_LORA_NAME_MAX)
            return PROA_FAIL(err, INVALID, "--lora '%s' is not of the form NAME=PATH", text);
        memcpy(names[i], text, len);
        names[i][len] = '\0';
        sources[i] = (proa_adapter_source){names[i], equals + 1};
    }
    out->adapters = sources, out->adapters_count = list->count;
    return PROA_OK;
}

proa_status proa_session_options(proa_engine_options *out, const proa_common *c, proa_err *err)
{
    *out = (proa_engine_options){.device = c->device,
                                 .dtype = c->dtype,
                                 .quant = c->quant,
                                 .kv_dtype = c->kv_dtype,
                                 .prefix_cache = c->prefix_cache,
                                 .prefix_host_memory = c->prefix_host_memory,
                                 .prefix_dir = c->prefix_dir,
                                 .prefix_dir_size = c->prefix_dir_size,
                                 .threads = (int32_t)c->threads,
                                 .tensor_parallel = (int32_t)c->tensor_parallel,
                                 .pipeline_parallel = (int32_t)c->pipeline_parallel,
                                 .expert_parallel = c->expert_parallel && strcmp(c->expert_parallel, "on") == 0,
                                 .ranks = c->ranks,
                                 .rank_sums = c->rank_sums,
                                 .sequences_max = (int32_t)c->sequences,
                                 .step_tokens = (int32_t)c->step_tokens,
                                 .prompt_rows = (int32_t)c->prompt_rows,
                                 .prompt_slowdown = (float)c->prompt_slowdown,
                                 .speculation = c->speculation,
                                 .draft_model = c->draft_model,
                                 .draft_tokens = (int32_t)c->draft_tokens,
                                 .kv_tokens = c->kv_tokens,
                                 .kv_share = (float)c->kv_share,
                                 .policy = c->policy,
                                 .adapter_slots = (int32_t)c->lora_slots,
                                 .adapters_max = (int32_t)c->lora_max,
                                 .adapter_rank = (int32_t)c->lora_rank,
                                 .adapter_dtype = c->lora_dtype};
    return read_adapters(out, &c->lora, err);
}

void proa_session_room(proa_engine_options *options, int64_t beams, int64_t max_tokens, bool many)
{
    enum { MANY = 256 }; /* a file is translated 1.15 to 1.2 times as fast as with 16 (docs/performance.md) */
    /* every beam writes its own pages from the prompt's last page on; the engine plans PROA_SEQUENCE_TOKENS
     * for a sequence */
    int64_t tokens = max_tokens + 2 * PROA_PAGE_TOKENS;
    int64_t sequences = beams > 1 ? beams * proa_ceil_div(tokens, PROA_SEQUENCE_TOKENS) : 0;
    if (many) sequences = proa_max64(sequences, proa_max64(MANY, proa_sizes_sequences(options->device)));
    sequences = proa_min64(proa_max64(sequences, PROA_SEQUENCES_DEFAULT), PROA_SEQUENCES_MAX);
    options->sequences_default = (int32_t)sequences;
}

static void show_loading(void *arg, const char *what, double part)
{
    proa_progress_show(arg, part, "loading %s", what);
}

proa_status proa_session_open(proa_session *s, const proa_common *common, const proa_engine_options *options,
                              proa_err *err)
{
    *s = (proa_session){.engine = NULL};
    proa_progress progress;
    proa_progress_init(&progress);
    proa_engine_options with_progress = *options;
    with_progress.progress = show_loading;
    with_progress.progress_arg = &progress;
    proa_status status = proa_engine_open(&s->engine, common->model, &with_progress, err);
    proa_progress_clear(&progress);
    if (status != PROA_OK) return status;
    s->open_s = proa_progress_seconds(&progress);
    proa_engine_info(s->engine, &s->info);
    return PROA_OK;
}

void proa_session_close(proa_session *s)
{
    proa_engine_close(s->engine);
    s->engine = NULL;
}

static volatile sig_atomic_t interrupted;

static void note_signal(int signal_number)
{
    PROA_UNUSED(signal_number);
    interrupted = 1;
}

void proa_interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool proa_interrupted(void)
{
    return interrupted != 0;
}

static void show_measuring(void *arg, double part)
{
    proa_progress_show(arg, part, "measuring the read bandwidth");
}

static double device_bandwidth(const char *name)
{
    proa_device *d;
    proa_err err = {0};
    if (proa_device_open(&d, name, &err) != PROA_OK) return 0;
    double rate = d->read_rate ? d->read_rate(d) : 0;
    proa_device_close(d);
    return rate;
}

double proa_session_bandwidth(const proa_common *common)
{
    if (strcmp(common->device, "cpu") != 0) return device_bandwidth(common->device);
    proa_progress progress;
    proa_progress_init(&progress);
    proa_pool *pool = proa_pool_new((int)common->threads);
    double bandwidth = proa_peak_read_bandwidth(pool, 0, show_measuring, &progress);
    proa_progress_clear(&progress);
    proa_pool_free(pool);
    return bandwidth;
}
