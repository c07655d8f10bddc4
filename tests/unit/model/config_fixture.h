/* SPDX-License-Identifier: Apache-2.0
 * config_fixture.h - a config.json as text, read by the row of its architecture. */
#ifndef CONFIG_FIXTURE_H
#define CONFIG_FIXTURE_H

#include "base/arena.h"
#include "base/json.h"
#include "model/arch.h"
#include <cmocka.h>

typedef struct fixture {
    const proa_arch *arch;
    proa_config c;
    proa_arena arena; /* the caller releases it, also after a failure */
    proa_err err;
} fixture;

static proa_status configure(fixture *f, const char *text)
{
    proa_json *json = NULL;
    *f = (fixture){0};
    proa_arena_init(&f->arena);
    proa_status status = proa_json_parse_python(&json, proa_str_c(text), "config.json", &f->err);
    if (status == PROA_OK) status = proa_arch_configure(&f->arch, &f->c, json, NULL, &f->arena, &f->err);
    proa_json_free(json);
    return status;
}

static inline void accepted(fixture *f, const char *text)
{
    if (configure(f, text) != PROA_OK) fail_msg("%s: %s", text, f->err.text);
}

static inline void refused(const char *text, proa_status status, const char *words)
{
    fixture f;
    proa_status got = configure(&f, text);
    if (got != status) fail_msg("%s: status %d (%s), expected %d", text, got, f.err.text, status);
    if (!strstr(f.err.text, words)) fail_msg("'%s' does not say '%s'", f.err.text, words);
    proa_arena_release(&f.arena);
}

#endif
