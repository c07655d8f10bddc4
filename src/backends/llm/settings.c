/* SPDX-License-Identifier: Apache-2.0
 * settings.c - parameters of a model, and of the command line for its backend, as options of its engines. */
#include "backends/llm/settings.h"

#include "backends/backends.h"
#include "backends/common.h"
#include "backends/model_folder.h"
#include "base/limits.h"
#include "engine/memory.h"
#include "serve/server.h"
#include <errno.h>
#include <string.h>
#include <strings.h>

/* Sequences that run at once on a CPU, a beam counts as one: decode rates hardly rise beyond (bench/README.md). On a
 * device it is the engine's default. */
#define SERVED_SEQUENCES 64

/* ---- one setting ---- */

const char *const proa_engine_setting_names[] = {"batch_scheduler_policy",
                                                 "chat_template",
                                                 "data_type",
                                                 "device",
                                                 "disaggregate",
                                                 "draft_model",
                                                 "draft_model_path",
                                                 "draft_tokens",
                                                 "dtype",
                                                 "enable_expert_parallel",
                                                 "expert_parallel",
                                                 "kv_cache_free_gpu_mem_fraction",
                                                 "kv_cache_host_memory_bytes",
                                                 "kv_dtype",
                                                 "kv_tokens",
                                                 "lora",
                                                 "lora_dtype",
                                                 "lora_max",
                                                 "lora_rank",
                                                 "lora_slots",
                                                 "max_cpu_loras",
                                                 "max_lora_rank",
                                                 "max_loras",
                                                 "max_num_sequences",
                                                 "max_num_tokens",
                                                 "max_tokens_in_paged_kv_cache",
                                                 "pipeline_para_size",
                                                 "pp",
                                                 "prefix_cache",
                                                 "prefix_dir",
                                                 "prefix_dir_size",
                                                 "prefix_host_memory",
                                                 "prompt_rows",
                                                 "prompt_slowdown",
                                                 "quant",
                                                 "rank_sums",
                                                 "ranks",
                                                 "reasoning_parser",
                                                 "replicas",
                                                 "sequences_max",
                                                 "speculation",
                                                 "step_tokens",
                                                 "tensor_para_size",
                                                 "threads",
                                                 "tool_parser",
                                                 "tp",
                                                 "world_size",
                                                 NULL};

static bool is_setting(const char *key)
{
    for (const char *const *name = proa_engine_setting_names; *name; name++)
        if (strcmp(*name, key) == 0) return true;
    return false;
}

/* A setting of the command line: for this backend, for all that use the engine (--dtype, ...), or for all backends. */
static const char *setting_of(const proa_served_model *m, const char *key)
{
    const proa_server *server = proa_served_model_server(m);
    const char *const backends[] = {proa_served_model_config(m)->backend, "engine", ""};
    const char *value = NULL;
    PROA_ASSERT(is_setting(key)); /* else the command line refuses it */
    for (size_t i = 0; i < PROA_COUNT(backends) && server && !value; i++)
        value = proa_backend_setting(server, backends[i], key);
    return value;
}

const char *proa_llm_setting(const proa_served_model *m, const char *key)
{
    const char *value = proa_served_model_parameter(m, key);
    return value ? value : setting_of(m, key);
}

/* The model's own parameters, by either name, come before the command line's. */
static const char *either_setting(const proa_served_model *m, const char *a, const char *b)
{
    const char *value = proa_served_model_parameter(m, a);
    if (!value) value = proa_served_model_parameter(m, b);
    if (!value) value = setting_of(m, a);
    return value ? value : setting_of(m, b);
}

static proa_status read_int(int64_t *out, const char *key, const char *value, int64_t max, proa_err *err)
{
    char *end;
    if (!value) return PROA_OK;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < 0 || number > max)
        return PROA_FAIL(err, INVALID, "parameter '%s' is '%s', must be 0 to %lld", key, value, (long long)max);
    *out = number;
    return PROA_OK;
}

static proa_status read_int32(int32_t *out, const proa_served_model *m, const char *key, const char *other,
                              int64_t max, proa_err *err)
{
    int64_t value = *out;
    PROA_TRY(read_int(&value, proa_served_model_parameter(m, other) ? other : key,
                      either_setting(m, key, other), max, err));
    *out = (int32_t)value;
    return PROA_OK;
}

static proa_status read_dtype(const char **out, const proa_served_model *m, proa_err *err)
{
    static const char *const names[][2] = {
        {"auto", "auto"}, {"exact", "exact"}, {"f32", "f32"},     {"fp32", "f32"},  {"float32", "f32"},
        {"f16", "f16"},   {"fp16", "f16"},    {"float16", "f16"}, {"bf16", "bf16"}, {"bfloat16", "bf16"}};
    const char *value = either_setting(m, "dtype", "data_type");
    *out = "auto";
    if (!value) return PROA_OK;
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        if (strcasecmp(value, names[i][0]) != 0) continue;
        *out = names[i][1];
        return PROA_OK;
    }
    return PROA_FAIL(err, INVALID, "parameter 'dtype' is '%s', must be auto, exact, f32, f16 or bf16", value);
}

/* prefix_cache: on or off; enable_kv_cache_reuse is what TensorRT-LLM's backend calls it. */
static proa_status read_prefix_cache(const char **out, const proa_served_model *m, proa_err *err)
{
    const char *value = proa_served_model_parameter(m, "prefix_cache");
    bool reuse = true;
    PROA_TRY(proa_parameter_flag(&reuse, m, "enable_kv_cache_reuse", err));
    *out = value                                                     ? value
           : proa_served_model_parameter(m, "enable_kv_cache_reuse") ? reuse ? "on" : "off"
                                                                     : NULL;
    if (!*out) *out = setting_of(m, "prefix_cache");
    return PROA_OK;
}

/* A number of the range; *out stays as it is without the parameter. */
static proa_status read_real(float *out, const proa_served_model *m, const char *key, double min, double max,
                             proa_err *err)
{
    const char *value = either_setting(m, key, key);
    char *end;
    if (!value) return PROA_OK;
    double number = strtod(value, &end);
    if (end == value || *end || !(number >= min && number <= max))
        return PROA_FAIL(err, INVALID, "parameter '%s' is '%s', must be %g to %g", key, value, min, max);
    *out = (float)number;
    return PROA_OK;
}

static proa_status read_share(float *out, const proa_served_model *m, proa_err *err)
{
    const char *key = "kv_cache_free_gpu_mem_fraction", *value = either_setting(m, key, key);
    if (value && strtod(value, NULL) == 0)
        return PROA_FAIL(err, INVALID, "parameter '%s' is '%s', must be above 0 to 1", key, value);
    return read_real(out, m, key, 0, 1, err);
}

static proa_status read_expert_parallel(bool *out, const proa_served_model *m, proa_err *err)
{
    const char *value = either_setting(m, "expert_parallel", "enable_expert_parallel");
    *out = value && (strcmp(value, "on") == 0 || strcmp(value, "true") == 0);
    if (!value || *out || strcmp(value, "off") == 0 || strcmp(value, "false") == 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "parameter 'expert_parallel' is '%.40s', must be on or off", value);
}

/* Ranks that share each layer and stages of layers: FasterTransformer's words of a model on GPUs; or --tp and --pp.
 * TensorRT-LLM's world_size is the number of all ranks. On a CPU they mean the same. */
static proa_status read_parallel(proa_engine_options *o, const proa_served_model *m, proa_err *err)
{
    static const char *const words[] = {"tensor_para_size", "pipeline_para_size", "world_size"};
    int32_t world = 0;
    PROA_TRY(read_int32(&o->tensor_parallel, m, "tp", "tp", PROA_RANKS_MAX, err));
    PROA_TRY(read_int32(&o->pipeline_parallel, m, "pp", "pp", PROA_RANKS_MAX, err));
    PROA_TRY(read_expert_parallel(&o->expert_parallel, m, err));
    o->ranks = either_setting(m, "ranks", "ranks");
    o->rank_sums = either_setting(m, "rank_sums", "rank_sums");
    PROA_TRY(read_int32(&o->tensor_parallel, m, "tp", words[0], PROA_RANKS_MAX, err));
    PROA_TRY(read_int32(&o->pipeline_parallel, m, "pp", words[1], PROA_RANKS_MAX, err));
    PROA_TRY(read_int32(&world, m, words[2], words[2], PROA_RANKS_MAX, err));
    int32_t stages = o->pipeline_parallel > 1 ? o->pipeline_parallel : 1;
    if (world % stages)
        return PROA_FAIL(err, INVALID, "parameter 'world_size' is %d, must be a multiple of the %d stages",
                         world, stages);
    if (world) o->tensor_parallel = world / stages;
    return PROA_OK;
}

/* guaranteed_completion is what TensorRT-LLM called guaranteed_no_evict before its first release. */
static proa_status read_policy(const char **out, const proa_served_model *m, proa_err *err)
{
    const char *policy = proa_served_model_parameter(m, "batch_scheduler_policy");
    if (!policy) policy = setting_of(m, "batch_scheduler_policy");
    if (policy && strcmp(policy, "guaranteed_completion") == 0) policy = "guaranteed_no_evict";
    if (policy && strcmp(policy, "guaranteed_no_evict") != 0 && strcmp(policy, "max_utilization") != 0)
        return PROA_FAIL(err, INVALID,
                         "parameter 'batch_scheduler_policy' is '%s', must be max_utilization, "
                         "guaranteed_no_evict or guaranteed_completion",
                         policy);
    *out = policy;
    return PROA_OK;
}

/* ---- devices and replicas ---- */

/* The model's own parameter, or the first GPU of its instance groups, or what the command line says. */
static void read_device(const char **out, proa_llm_model *s)
{
    const Inference__ModelConfig *c = proa_served_model_config(s->model);
    const char *own = proa_served_model_parameter(s->model, "device");
    *out = own ? own : setting_of(s->model, "device");
    for (size_t i = 0; i < c->n_instance_group && !own; i++) {
        const Inference__ModelInstanceGroup *g = c->instance_group[i];
        if (g->kind != INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU || g->passive) continue;
        *out = proa_arena_printf(&s->arena, "cuda:%d", g->n_gpus ? g->gpus[0] : 0);
        return;
    }
}

static proa_status check_gpus(const Inference__ModelInstanceGroup *g, int32_t ranks, proa_err *err)
{
    size_t each = (size_t)ranks;
    if (g->n_gpus <= 1) return PROA_OK; /* the first one; ranks are on those that follow it */
    if (g->n_gpus % each)
        return PROA_FAIL(
            err, INVALID,
            "instance group %s names %zu GPUs, must be a multiple of the %d that one model takes "
            "(tensor_para_size)",
            g->name, g->n_gpus, ranks);
    for (size_t i = 0; i < g->n_gpus; i++)
        if (i % each && g->gpus[i] != g->gpus[i - 1] + 1)
            return PROA_FAIL(
                err, UNSUPPORTED,
                "instance group %s: GPU %d follows %d, the %d GPUs of one model must follow each "
                "other",
                g->name, g->gpus[i], g->gpus[i - 1], ranks);
    return PROA_OK;
}

/* A replica for each instance: `count` of them for each set of GPUs that one model takes. own: the model's parameter
 * 'device', where all of them are then. */
static proa_status add_group(proa_fleet_options *f, proa_llm_model *s, const Inference__ModelInstanceGroup *g,
                             int32_t ranks, bool own, proa_err *err)
{
    bool gpu = g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU && !own;
    int64_t count = g->count > 0 ? g->count : 1;
    size_t sets = gpu && g->n_gpus > (size_t)ranks ? g->n_gpus / (size_t)ranks : 1;
    if (g->passive) return PROA_OK;
    if (gpu) PROA_TRY(check_gpus(g, ranks, err));
    if (f->count + count * (int64_t)sets > PROA_REPLICAS_MAX)
        return PROA_FAIL(err, LIMIT, "instance group %s: more than %d replicas of a model", g->name,
                         PROA_REPLICAS_MAX);
    for (size_t set = 0; set < sets; set++) {
        int32_t first = g->n_gpus ? g->gpus[set * (size_t)ranks] : 0;
        for (int64_t i = 0; i < count; i++)
            f->device[f->count++] = gpu ? proa_arena_printf(&s->arena, "cuda:%d", first) : NULL;
    }
    return PROA_OK;
}

/* So many replicas, each on the GPUs that follow those of the one before. */
static void repeat_replica(proa_fleet_options *f, proa_llm_model *s, const proa_engine_options *o,
                           int32_t count, int32_t ranks)
{
    const char *device = f->device[0] ? f->device[0] : o->device;
    bool gpu = device && strncmp(device, "cuda", 4) == 0;
    long first = gpu && device[4] == ':' ? strtol(device + 5, NULL, 10) : 0;
    f->count = count;
    for (int32_t i = 0; i < count; i++)
        f->device[i] = gpu ? proa_arena_printf(&s->arena, "cuda:%ld", first + (long)i * ranks) : NULL;
}

/* "prefill=1,decode=3": replicas that run prompts for others, and all. Neither changes without the parameter. */
static proa_status read_disaggregate(proa_fleet_options *f, int32_t *count, const proa_served_model *m,
                                     proa_err *err)
{
    const char *value = either_setting(m, "disaggregate", "disaggregate");
    int prefill = 0, decode = 0, end = 0;
    if (!value) return PROA_OK;
    bool read = sscanf(value, "prefill=%3d,decode=%3d%n", &prefill, &decode, &end) == 2 && !value[end];
    if (!read || prefill < 1 || decode < 1 || prefill + decode > PROA_REPLICAS_MAX)
        return PROA_FAIL(
            err, INVALID,
            "parameter 'disaggregate' is '%.80s', must be prefill=N,decode=M with 1 or more of each and at "
            "most %d in all",
            value, PROA_REPLICAS_MAX);
    if (*count > 1 && *count != prefill + decode)
        return PROA_FAIL(err, INVALID, "parameter 'disaggregate' is '%.80s', but there are %d replicas",
                         value, *count);
    f->prefill = prefill;
    *count = prefill + decode;
    return PROA_OK;
}

/* The instance groups, or where these have one instance, parameter 'replicas'. */
proa_status proa_llm_read_replicas(proa_fleet_options *f, proa_llm_model *s, const proa_engine_options *o,
                                   proa_err *err)
{
    const Inference__ModelConfig *c = proa_served_model_config(s->model);
    int32_t tensors = o->tensor_parallel > 1 ? o->tensor_parallel : 1, count = 0;
    int32_t ranks = tensors * (o->pipeline_parallel > 1 ? o->pipeline_parallel : 1);
    bool own = proa_served_model_parameter(s->model, "device") != NULL;
    *f = (proa_fleet_options){.count = 0};
    for (size_t i = 0; i < c->n_instance_group; i++)
        PROA_TRY(add_group(f, s, c->instance_group[i], ranks, own, err));
    if (f->count == 0) f->count = 1;
    PROA_TRY(read_int32(&count, s->model, "replicas", "replicas", PROA_REPLICAS_MAX, err));
    if (count <= 1 && f->count > 1) count = f->count;
    PROA_TRY(read_disaggregate(f, &count, s->model, err));
    if (count > 1 && f->count > 1 && count != f->count)
        return PROA_FAIL(err, INVALID, "parameter 'replicas' is %d, but the instance groups have %d instances",
                         count, f->count);
    if (count > 1 && f->count == 1) repeat_replica(f, s, o, count, ranks);
    return PROA_OK;
}

static proa_status engine_options(proa_engine_options *o, proa_llm_model *s, proa_err *err)
{
    const proa_served_model *m = s->model;
    const char *quant = proa_served_model_parameter(m, "quant"),
               *int8 = proa_served_model_parameter(m, "int8_mode");
    *o = (proa_engine_options){.detach_files = true};
    read_device(&o->device, s);
    int32_t planned = proa_sizes_sequences(o->device);
    o->sequences_default = planned > SERVED_SEQUENCES ? planned : SERVED_SEQUENCES;
    if (!quant && !int8) quant = setting_of(m, "quant");
    o->quant = quant ? quant : int8 && strcmp(int8, "0") != 0 ? "int8" : "none";
    o->kv_dtype = either_setting(m, "kv_dtype", "kv_dtype");
    PROA_TRY(read_dtype(&o->dtype, m, err));
    PROA_TRY(read_int32(&o->threads, m, "threads", "threads", PROA_THREADS_MAX, err));
    PROA_TRY(read_int32(&o->sequences_max, m, "sequences_max", "max_num_sequences", PROA_SEQUENCES_MAX, err));
    PROA_TRY(read_int32(&o->step_tokens, m, "step_tokens", "max_num_tokens", PROA_STEP_TOKENS_MAX, err));
    PROA_TRY(read_int32(&o->prompt_rows, m, "prompt_rows", "prompt_rows", PROA_STEP_TOKENS_MAX, err));
    PROA_TRY(read_real(&o->prompt_slowdown, m, "prompt_slowdown", 1, PROA_PROMPT_SLOWDOWN_MAX, err));
    PROA_TRY(read_int(&o->kv_tokens, "kv_tokens",
                      either_setting(m, "kv_tokens", "max_tokens_in_paged_kv_cache"), (int64_t)1 << 32, err));
    PROA_TRY(read_share(&o->kv_share, m, err));
    PROA_TRY(read_prefix_cache(&o->prefix_cache, m, err));
    o->prefix_dir = setting_of(m, "prefix_dir"); /* no parameter: a client that loads a model may not name folders */
    o->prefix_dir_size = setting_of(m, "prefix_dir_size");
    o->prefix_host_memory = either_setting(m, "prefix_host_memory", "kv_cache_host_memory_bytes");
    PROA_TRY(read_parallel(o, m, err));
    return read_policy(&o->policy, m, err);
}

/* The draft model's folder is relative to the model's. */
static proa_status read_speculation(proa_engine_options *o, proa_llm_model *s, proa_err *err)
{
    const char *folder = either_setting(s->model, "draft_model", "draft_model_path");
    char path[PROA_PATH_MAX];
    o->speculation = either_setting(s->model, "speculation", "speculation");
    PROA_TRY(read_int32(&o->draft_tokens, s->model, "draft_tokens", "draft_tokens", PROA_TREE_MAX, err));
    if (!folder) return PROA_OK;
    PROA_TRY(proa_model_path(path, s->model, "draft_model", folder, err));
    o->draft_model = proa_arena_strdup(&s->arena, proa_str_c(path));
    return PROA_OK;
}

/* ---- adapters ---- */

/* Setting 'lora': NAME=PATH, more of them after commas. Paths are relative to the model's folder. */
static proa_status read_adapters(proa_engine_options *o, proa_llm_model *s, proa_err *err)
{
    const char *text = either_setting(s->model, "lora", "lora");
    if (!text) text = "";
    proa_adapter_source *list = PROA_ARENA_NEW(&s->arena, proa_adapter_source, (int64_t)strlen(text) / 2 + 1);
    for (size_t len; *text; text += len + (text[len] == ',')) {
        len = strcspn(text, ",");
        const char *pair = proa_arena_strdup(&s->arena, (proa_str){text, len}), *equals = strchr(pair, '=');
        char path[PROA_PATH_MAX];
        if (!equals || equals == pair || !equals[1])
            return PROA_FAIL(err, INVALID, "parameter 'lora': '%.80s' is not of the form NAME=PATH", pair);
        PROA_TRY(proa_model_path(path, s->model, "lora", equals + 1, err));
        list[o->adapters_count++] = (proa_adapter_source){
            proa_arena_strdup(&s->arena, (proa_str){pair, (size_t)(equals - pair)}),
            proa_arena_strdup(&s->arena, proa_str_c(path))};
    }
    o->adapters = list;
    o->adapter_dtype = either_setting(s->model, "lora_dtype", "lora_dtype");
    PROA_TRY(read_int32(&o->adapter_slots, s->model, "lora_slots", "max_loras", PROA_LORA_SLOTS_MAX, err));
    PROA_TRY(read_int32(&o->adapters_max, s->model, "lora_max", "max_cpu_loras", PROA_LORA_ADAPTERS_MAX, err));
    return read_int32(&o->adapter_rank, s->model, "lora_rank", "max_lora_rank", PROA_LORA_RANK_MAX, err);
}

/* The queue policy of the configuration, or a parameter, or no limit but the engine's. */
proa_status proa_llm_read_queue(proa_llm_model *s, proa_err *err)
{
    const Inference__ModelConfig *c = proa_served_model_config(s->model);
    bool dynamic = c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    const Inference__ModelQueuePolicy *policy = dynamic ? c->dynamic_batching->default_queue_policy : NULL;
    s->queue_max = policy ? policy->max_queue_size : 0;
    PROA_TRY(read_int(&s->queue_max, "max_queue_size",
                      proa_served_model_parameter(s->model, "max_queue_size"), PROA_WAITING_MAX, err));
    if (s->queue_max == 0) s->queue_max = PROA_WAITING_MAX;
    return PROA_OK;
}

proa_status proa_llm_read_options(proa_engine_options *o, proa_llm_model *s, proa_err *err)
{
    PROA_TRY(engine_options(o, s, err));
    PROA_TRY(read_speculation(o, s, err));
    return read_adapters(o, s, err);
}
