/* SPDX-License-Identifier: Apache-2.0
 * hub.c - pulls a model for a command, with a progress line. */
#include "cli/hub.h"

#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "hub/cloud/cloud.h"
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

/* The folder of a model in an object store, on the heap. */
static proa_status fetch_cloud(char **path, const char *address, proa_err *err)
{
    pull_progress progress = {.bytes_first = -1};
    const proa_cloud_options options = {.progress = show_pull, .progress_arg = &progress};
    proa_cloud *cloud = NULL;
    PROA_TRY(proa_cloud_open(&cloud, address, &options, err));
    const char *model = proa_cloud_single(cloud);
    proa_progress_init(&progress.line);
    proa_status status = model ? proa_cloud_fetch(cloud, model, false, err)
                               : PROA_FAIL(err, INVALID, "'%s' has no config.json: it is no model", address);
    proa_progress_clear(&progress.line);
    if (status == PROA_OK) *path = proa_cloud_model_path(cloud, model);
    if (status == PROA_OK && !*path) status = PROA_FAIL(err, INTERNAL, "'%s' is not in the cache", address);
    proa_cloud_close(cloud);
    return status;
}

static proa_status fetch_hub(char **path, const char *name, proa_err *err)
{
    static const proa_hub_options defaults;
    proa_hub_result result;
    if (proa_cli_pull(name, &defaults, &result, err) != PROA_OK) {
        proa_err_prefix(err, "'%s' is no local path", name);
        return err->status;
    }
    *path = result.path, result.path = NULL;
    proa_hub_result_release(&result);
    return PROA_OK;
}

proa_status proa_cli_find_model(const char **model, proa_err *err)
{
    static char *found[PROA_ARG_LIST_MAX]; /* so that the texts are not lost */
    static int found_count;
    bool cloud = proa_cloud_is_address(*model);
    if (!cloud && !proa_hub_is_name(*model)) return PROA_OK;
    if (found_count == PROA_ARG_LIST_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d models of a hub", PROA_ARG_LIST_MAX);
    proa_interrupt_watch();
    PROA_TRY(cloud ? fetch_cloud(&found[found_count], *model, err) : fetch_hub(&found[found_count], *model, err));
    *model = found[found_count++];
    return PROA_OK;
}
