/* SPDX-License-Identifier: Apache-2.0
 * score.c - `proa run --score`: log-probabilities of a given text. */
#include "base/alloc.h"
#include "cli/run/cmd_run.h"
#include <string.h>

/* The decoder's ids of a target: the start token, then the text with its end token as the tokenizer's
 * template has it. */
static proa_status target_ids(const proa_session *s, proa_request *request, proa_str text, int32_t **hold,
                              proa_err *err)
{
    int64_t count = 0;
    PROA_TRY(proa_encode_text(s->engine, text, hold, &count, err));
    if (s->info.decoder_start_id < 0)
        return PROA_FAIL(err, INVALID, "config.json has no 'decoder_start_token_id': give --decoder-ids");
    int32_t *ids = proa_malloc((size_t)(count + 1) * sizeof *ids);
    ids[0] = s->info.decoder_start_id;
    memcpy(ids + 1, *hold, (size_t)count * sizeof *ids);
    free(*hold);
    *hold = ids;
    request->decoder_ids = ids;
    request->decoder_ids_count = count + 1;
    return PROA_OK;
}

static proa_status score_target(const proa_session *s, proa_request *request, const proa_str *text,
                                proa_show *show, int32_t **hold, proa_err *err)
{
    if (!request->text && !request->ids)
        return PROA_FAIL(err, INVALID,
                         "--score of an encoder-decoder needs the source beside the target: PROMPT or --ids");
    if (text) PROA_TRY(target_ids(s, request, *text, hold, err));
    if (!request->decoder_ids)
        return PROA_FAIL(err, INVALID,
                         "--score of an encoder-decoder needs the target: --score TARGET or --decoder-ids");
    show->first_id = request->decoder_ids[0];
    return PROA_OK;
}

static proa_status score_text(const proa_session *s, proa_request *request, const proa_str *text,
                              proa_show *show, int32_t **hold, proa_err *err)
{
    if (text && (request->text || request->ids))
        return PROA_FAIL(err, INVALID, "--score TEXT of a %s takes no prompt beside it", s->info.arch);
    if (!request->ids) {
        proa_str own = text ? *text : (proa_str){request->text, request->text_len};
        PROA_TRY(proa_encode_text(s->engine, own, hold, &request->ids_count, err));
        request->ids = *hold;
        request->text = NULL;
        request->text_len = 0;
    }
    if (request->ids_count) show->first_id = request->ids[0];
    return PROA_OK;
}

proa_status proa_score_request(const proa_session *s, proa_request *request, const proa_str *text,
                               proa_show *show, int32_t **hold, proa_err *err)
{
    *hold = NULL;
    request->task = PROA_TASK_SCORE;
    if (s->info.kind == PROA_KIND_ENCODER)
        return PROA_FAIL(err, UNSUPPORTED, "--score needs a model that generates, and a %s does not",
                         s->info.arch);
    if (s->info.kind == PROA_KIND_DECODER) return score_text(s, request, text, show, hold, err);
    return score_target(s, request, text, show, hold, err);
}

proa_status proa_run_score(proa_session *s, proa_run_settings *run, proa_request *request, proa_output *out,
                           proa_err *err)
{
    proa_str text = proa_str_c(run->score);
    int32_t *hold = NULL;
    proa_result r;
    proa_show show = proa_run_show(&request->options, run->common.json);
    proa_result_init(&r);
    proa_status status = proa_score_request(s, request, *run->score ? &text : NULL, &show, &hold, err);
    if (status == PROA_OK) status = proa_result_run(s->engine, request, &r, err);
    if (status == PROA_OK && run->common.json) {
        proa_output_str(out, "{");
        proa_print_score_json(out, &r, &show);
        proa_output_str(out, "}\n");
    } else if (status == PROA_OK) {
        proa_print_score(out, &r);
    }
    proa_result_release(&r);
    free(hold);
    return status;
}
