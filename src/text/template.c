/* SPDX-License-Identifier: Apache-2.0
 * template.c - opens a Jinja template and renders it. */
#include "text/template.h"

#include "base/alloc.h"
#include "text/jinja/run.h"

struct proa_template {
    proa_jcode code;
};

proa_status proa_template_new(proa_template **out, proa_str source, proa_err *err)
{
    proa_template *t = proa_calloc(1, sizeof *t);
    proa_status status = proa_j_parse(&t->code, source, err);
    *out = status == PROA_OK ? t : NULL;
    if (status != PROA_OK) proa_template_free(t);
    return status;
}

void proa_template_free(proa_template *t)
{
    if (!t) return;
    proa_j_code_release(&t->code);
    free(t);
}

proa_status proa_template_render(const proa_template *t, const proa_json *variables, proa_buf *out, proa_err *err)
{
    const proa_jinput input = {.name = NULL, .json = variables};
    return proa_j_run(&t->code, &input, 1, out, err);
}

const proa_jcode *proa_template_code(const proa_template *t)
{
    return &t->code;
}
