/* SPDX-License-Identifier: Apache-2.0
 * default.c - fills the defaults that a configuration leaves out. */
#include "proto/message.h"
#include "serve/config/config.h"
#include <string.h>

static void append_int32(ProtobufCMessage *m, const char *field, int32_t value, proa_arena *arena)
{
    const ProtobufCFieldDescriptor *f = proa_field_find(m->descriptor, proa_str_c(field));
    *(int32_t *)proa_message_put(m, f, arena) = value;
}

static void normalise_sequence(Inference__ModelConfig *c, Inference__ModelSequenceBatching *s, proa_arena *arena)
{
    enum { IDLE_MICROSECONDS = 1000 * 1000 };
    if (s->max_sequence_idle_microseconds == 0) s->max_sequence_idle_microseconds = IDLE_MICROSECONDS;
    if (s->strategy_choice_case != INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST) return;
    if (s->oldest->n_preferred_batch_size == 0 && c->max_batch_size > 0)
        append_int32(&s->oldest->base, "preferred_batch_size", c->max_batch_size, arena);
}

static void pin_buffer(Inference__ModelOptimizationPolicy *o,
                       Inference__ModelOptimizationPolicy__PinnedMemoryBuffer *have, const char *field,
                       proa_arena *arena)
{
    if (have) return;
    ProtobufCMessage *m = proa_message_add(&o->base, field, arena);
    ((Inference__ModelOptimizationPolicy__PinnedMemoryBuffer *)m)->enable = true;
}

void proa_config_normalise(Inference__ModelConfig *config, proa_arena *arena)
{
    if (!config->version_policy) {
        ProtobufCMessage *policy = proa_message_add(&config->base, "version_policy", arena);
        ((Inference__ModelVersionPolicy__Latest *)proa_message_add(policy, "latest", arena))->num_versions = 1;
    }
    if (proa_config_dynamic(config) && config->dynamic_batching->n_preferred_batch_size == 0 &&
        config->max_batch_size > 0)
        append_int32(&config->dynamic_batching->base, "preferred_batch_size", config->max_batch_size, arena);
    if (proa_config_sequence(config)) normalise_sequence(config, config->sequence_batching, arena);
    if (proa_config_ensemble(config)) return;
    if (!config->optimization) proa_message_add(&config->base, "optimization", arena);
    Inference__ModelOptimizationPolicy *o = config->optimization;
    pin_buffer(o, o->input_pinned_memory, "input_pinned_memory", arena);
    pin_buffer(o, o->output_pinned_memory, "output_pinned_memory", arena);
}

/* AUTO means the GPUs, if there are any and all listed ones exist; else the CPU. */
static Inference__ModelInstanceGroup__Kind auto_kind(const Inference__ModelInstanceGroup *g, int gpus)
{
    bool all = gpus > 0;
    for (size_t i = 0; i < g->n_gpus && all; i++) all = g->gpus[i] >= 0 && g->gpus[i] < gpus;
    return all ? INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU
               : INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU;
}

static int32_t default_count(const Inference__ModelInstanceGroup *g, const char *backend)
{
    bool pairs = strcmp(backend, "onnxruntime") == 0 || strcmp(backend, "tensorflow") == 0;
    return pairs && g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU ? 2 : 1;
}

void proa_config_normalise_groups(Inference__ModelConfig *config, const proa_config_options *options,
                                  proa_arena *arena)
{
    if (proa_config_ensemble(config)) return;
    if (config->n_instance_group == 0) {
        ProtobufCMessage *group = proa_message_add(&config->base, "instance_group", arena);
        ((Inference__ModelInstanceGroup *)group)->name = config->name;
    }
    for (size_t i = 0; i < config->n_instance_group; i++) {
        Inference__ModelInstanceGroup *g = config->instance_group[i];
        if (!g->name[0]) g->name = proa_arena_printf(arena, "%s_%zu", config->name, i);
        if (g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_AUTO)
            g->kind = auto_kind(g, options->gpus);
        if (g->count < 1) g->count = default_count(g, config->backend);
        if (g->kind != INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU || g->n_gpus > 0) continue;
        int gpus = options->gpus == PROA_GPUS_UNCOUNTED ? 1 : options->gpus;
        for (int gpu = 0; gpu < gpus; gpu++) append_int32(&g->base, "gpus", gpu, arena);
    }
}
