/* SPDX-License-Identifier: Apache-2.0
 * parameters.c - parameters of a configuration without effect: misspelt ones, and those that nobody has filled in.
 *
 * Only a backend knows its parameters, and it ignores many that other servers' configurations have. So the names
 * that it reads while it opens a model are recorded, and a parameter that it did not read is reported only if its
 * name is nearly one of these. */
#include "base/arena.h"
#include "base/log.h"
#include "base/str.h"
#include "serve/core.h"

#include <string.h>

enum { ASKED_MAX = 256, LISTED_BYTES_MAX = 4096 };

struct proa_asked {
    proa_arena *arena; /* the model's */
    const char *keys[ASKED_MAX];
    int count;
};

void proa_parameters_watch(proa_served_model *m)
{
    if (m->config->n_parameters == 0) return;
    m->asked = PROA_ARENA_NEW(&m->arena, proa_asked, 1);
    m->asked->arena = &m->arena;
}

static bool is_asked(const proa_asked *asked, const char *key)
{
    for (int i = 0; i < asked->count; i++)
        if (strcmp(asked->keys[i], key) == 0) return true;
    return false;
}

void proa_parameters_note(const proa_served_model *m, const char *key)
{
    proa_asked *asked = m->asked;
    if (!asked || asked->count == ASKED_MAX || is_asked(asked, key)) return;
    asked->keys[asked->count++] = proa_arena_strdup(asked->arena, proa_str_c(key));
}

/* One letter is wrong, or of a long name two. */
static bool is_near(const char *given, const char *key)
{
    size_t len = strlen(key);
    return len >= 5 && proa_str_distance(given, key) <= (len >= 8 ? 2 : 1);
}

static void report_misspelt(const proa_served_model *m, const char *given)
{
    for (int i = 0; i < m->asked->count; i++) {
        if (!is_near(given, m->asked->keys[i])) continue;
        PROA_LOG(WARNING, "model '%s': parameter '%s' has no effect (did you mean '%s'?)", m->name, given,
                 m->asked->keys[i]);
        return;
    }
}

void proa_parameters_report(proa_served_model *m)
{
    proa_buf open;
    proa_buf_init(&open, LISTED_BYTES_MAX);
    for (size_t i = 0; i < m->config->n_parameters && m->asked; i++) {
        const Inference__ModelConfig__ParametersEntry *p = m->config->parameters[i];
        if (!is_asked(m->asked, p->key)) report_misspelt(m, p->key);
        else if (proa_config_is_placeholder(p))
            proa_buf_printf(&open, "%s%s (%s)", open.len ? ", " : "", p->key, p->value->string_value);
    }
    if (open.len)
        PROA_LOG(INFO, "model '%s': parameters that no --set fills count as absent: %.*s", m->name,
                 (int)open.len, open.ptr);
    proa_buf_release(&open);
    m->asked = NULL;
}
