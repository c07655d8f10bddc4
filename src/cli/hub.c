/* SPDX-License-Identifier: Apache-2.0
 * hub.c - pulls a model for a command, with a progress line. */
#include "cli/hub.h"

#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include <stdlib.h>
#include <string.h>

/* Rates are measured from the first report on: what was there before took no time. */
typedef struct pull_progress {
    proa_progress line;
    int64_t bytes_first; /* -1: no report yet */
    double seconds_first;
} pull_progress;

static bool show_pull(void *arg, const proa_hub_progress *now)
{
    pull_progress *p = arg;
    char done[16], all[16], rate[16];
    if (proa_interrupted()) return false;
    if (now->bytes > 0 && p->bytes_first < 0)
        p->bytes_first = now->bytes_done, p->seconds_first = proa_progress_seconds(&p->line);
    if (!proa_progress_due(&p->line)) return true;
    if (now->bytes == 0) {
        proa_progress_show(&p->line, -1, "asking the hub%s%s", now->waiting ? ": " : "",
                           now->waiting ? now->waiting : "");
        return true;
    }
    double seconds = proa_progress_seconds(&p->line) - p->seconds_first;
    double speed = seconds > 0 ? (double)(now->bytes_done - p->bytes_first) / seconds : 0;
    double part = (double)now->bytes_done / (double)now->bytes;
    proa_output_bytes_text(done, (double)now->bytes_done);
    proa_output_bytes_text(all, (double)now->bytes);
    if (now->waiting) proa_progress_show(&p->line, part, "%s of %s, %s", done, all, now->waiting);
    else
        proa_progress_show(&p->line, part, "%s of %s, %s/s, %s", done, all,
                           proa_output_bytes_text(rate, speed), now->file ? now->file : "");
    return true;
}

proa_status proa_cli_pull(const char *name, const proa_hub_options *options, proa_hub_result *result,
                          proa_err *err)
{
    pull_progress progress = {.bytes_first = -1};
    proa_hub_options with_progress = *options;
    with_progress.progress = show_pull, with_progress.progress_arg = &progress;
    proa_progress_init(&progress.line);
    proa_status status = proa_hub_pull(NULL, name, &with_progress, result, err);
    proa_progress_clear(&progress.line);
    return status;
}

proa_status proa_cli_find_model(const char **model, proa_err *err)
{
    static char *found[PROA_ARG_LIST_MAX]; /* so that the texts are not lost */
    static int found_count;
    static const proa_hub_options defaults;
    proa_hub_result result;
    if (!proa_hub_is_name(*model)) return PROA_OK;
    if (found_count == PROA_ARG_LIST_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d models of a hub", PROA_ARG_LIST_MAX);
    proa_interrupt_watch();
    if (proa_cli_pull(*model, &defaults, &result, err) != PROA_OK) {
        proa_err_prefix(err, "'%s' is no local path", *model);
        return err->status;
    }
    found[found_count] = result.path, result.path = NULL;
    *model = found[found_count++];
    proa_hub_result_release(&result);
    return PROA_OK;
}
