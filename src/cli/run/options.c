/* SPDX-License-Identifier: Apache-2.0
 * options.c - decoding options of `proa run`: this command's defaults, what is printed, what it refuses. */
#include "cli/run/cmd_run.h"

#include "base/checked.h"
#include "engine/access.h"

proa_options proa_run_options(const proa_run_settings *run, const proa_session *s)
{
    proa_options o = run->decoding.options;
    bool limited, samples = o.temperature > 0 || !o.given[PROA_OPTION_temperature];
    const proa_options *model = proa_engine_defaults(s->engine, &limited);
    bool searches = o.beams > 1 || o.penalty_alpha > 0 || (o.beams == 0 && model->beams > 1);
    o.seed = (uint64_t)run->common.seed;
    if (!o.given[PROA_OPTION_max_tokens] && s->info.kind == PROA_KIND_DECODER && !limited)
        o.max_tokens = PROA_RUN_TOKENS;
    if (!o.given[PROA_OPTION_n] && samples && !searches) o.n = model->n; /* what is shown depends on it */
    return o;
}

proa_show proa_run_show(proa_options *o, bool json)
{
    proa_show show = {.logprobs = o->logprobs,
                      .prompt_logprobs = o->prompt_logprobs,
                      .logits = o->return_logits,
                      .hidden = o->return_hidden,
                      .top = o->top_logprobs,
                      .sequences = o->n > 1 || o->best_of > 1};
    if (show.sequences && json) o->logprobs = true; /* their sums are printed */
    return show;
}

bool proa_run_rescores(const proa_options *o)
{
    return o->beams > 1 || o->best_of > proa_max64(o->n, 1);
}

proa_status proa_run_check(const proa_options *o, bool one_line_each, proa_err *err)
{
    const char *many = o->beams > 1 ? "beams" : "best_of";
    if (proa_run_rescores(o) && (o->return_logits || o->return_hidden))
        return PROA_FAIL(err, INVALID, "options '%s' and '%s' do not go together", many,
                         o->return_logits ? "return_logits" : "return_hidden");
    if (one_line_each && proa_run_rescores(o) && (o->logprobs || o->top_logprobs))
        return PROA_FAIL(err, INVALID, "options '%s' and '%s' do not go together with --input", many,
                         o->logprobs ? "logprobs" : "top_logprobs");
    return PROA_OK;
}

proa_status proa_run_check_rows(const proa_options *o, const proa_info *info, proa_err *err)
{
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const char *name = proa_option_rows[i].name;
        if (!o->given[i]) continue;
        if (info->kind != PROA_KIND_ENCODER)
            return PROA_FAIL(err, INVALID, "--logits generates nothing: option '%s' does not go with it", name);
        return PROA_FAIL(err, INVALID, "a %s generates nothing: option '%s' does not go with it", info->arch,
                         name);
    }
    return PROA_OK;
}
