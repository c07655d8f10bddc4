/* SPDX-License-Identifier: Apache-2.0
 * parameters.c - parameters of a configuration without effect: misspelt ones, and placeholders that were not filled in.
 *
 * Only a backend knows its parameters, and it ignores many that other servers' configurations have. So the names
 * that it reads while it opens a model are recorded, and a parameter that it did not read is reported only if its
 * name is nearly one of these. */
#include "base/arena.h"
#include "base/log.h"
#include "base/str.h"
#include "serve/core.h"

#include <string.h>

enum { READS_MAX = 256, LISTED_BYTES_MAX = 4096 };

struct proa_parameter_reads {
    proa_arena *arena; /* the model's */
    const char *keys[READS_MAX];
    int count;
};

void proa_parameters_watch(proa_served_model *m)
{
    if (m->config->n_parameters == 0) return;
    m->parameter_reads = PROA_ARENA_NEW(&m->arena, proa_parameter_reads, 1);
    m->parameter_reads->arena = &m->arena;
}

static bool is_read(const proa_parameter_reads *reads, const char *key)
{
    for (int i = 0; i < reads->count; i++)
        if (strcmp(reads->keys[i], key) == 0) return true;
    return false;
}

void proa_parameters_note(const proa_served_model *m, const char *key)
{
    proa_parameter_reads *reads = m->parameter_reads;
    if (!reads || reads->count == READS_MAX || is_read(reads, key)) return;
    reads->keys[reads->count++] = proa_arena_strdup(reads->arena, proa_str_c(key));
}

/* One letter is wrong, or of a long name two. */
static bool is_near(const char *given, const char *key)
{
    size_t len = strlen(key);
    return len >= 5 && proa_str_distance(given, key) <= (len >= 8 ? 2 : 1);
}

static void report_misspelt(const proa_served_model *m, const char *given)
{
    for (int i = 0; i < m->parameter_reads->count; i++) {
        if (!is_near(given, m->parameter_reads->keys[i])) continue;
        PROA_LOG(WARNING, "model '%s': parameter '%s' has no effect (did you mean '%s'?)", m->name, given,
                 m->parameter_reads->keys[i]);
        return;
    }
}

void proa_parameters_report(proa_served_model *m)
{
    proa_buf open;
    proa_buf_init(&open, LISTED_BYTES_MAX);
    for (size_t i = 0; i < m->config->n_parameters && m->parameter_reads; i++) {
        const Inference__ModelConfig__ParametersEntry *p = m->config->parameters[i];
        if (!is_read(m->parameter_reads, p->key)) report_misspelt(m, p->key);
        else if (proa_config_is_placeholder(p))
            proa_buf_printf(&open, "%s%s (%s)", open.len ? ", " : "", p->key, p->value->string_value);
    }
    if (open.len)
        PROA_LOG(INFO, "model '%s': parameters that no --set fills count as absent: %.*s", m->name,
                 (int)open.len, open.ptr);
    proa_buf_release(&open);
    m->parameter_reads = NULL;
}
