/* SPDX-License-Identifier: Apache-2.0
 * session.c - opens sessions. The one that was opened to complete a configuration is kept for the model's first
 * instance on the CPU, so that a large file is loaded once. */
#include "backends/gpu/gpu.h"
#include "backends/onnx/onnx.h"
#include <pthread.h>
#include <string.h>

/* A session between `complete` and the first instance of the same configuration. It is in the configuration's arena,
 * with which it goes if no instance takes it. */
typedef struct kept_session {
    const Inference__ModelConfig *config;
    const proa_ort *ort;
    OrtSession *session; /* NULL: taken */
    struct kept_session *next;
} kept_session;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kept_session *kept; /* under the lock */

static void drop_kept(void *arg)
{
    kept_session *mine = arg, **at = &kept;
    pthread_mutex_lock(&lock);
    while (*at != mine) at = &(*at)->next;
    *at = mine->next;
    pthread_mutex_unlock(&lock);
    if (mine->session) mine->ort->ReleaseSession(mine->session);
}

static void keep_session(OrtSession *session, const proa_ort *ort, const Inference__ModelConfig *config,
                         proa_arena *arena)
{
    kept_session *k = PROA_ARENA_NEW(arena, kept_session, 1);
    *k = (kept_session){config, ort, session, NULL};
    proa_arena_defer(arena, drop_kept, k);
    pthread_mutex_lock(&lock);
    k->next = kept;
    kept = k;
    pthread_mutex_unlock(&lock);
}

static OrtSession *take_kept(const Inference__ModelConfig *config)
{
    OrtSession *session = NULL;
    pthread_mutex_lock(&lock);
    for (kept_session *k = kept; k && !session; k = k->next)
        if (k->config == config) {
            session = k->session;
            k->session = NULL;
        }
    pthread_mutex_unlock(&lock);
    return session;
}

/* folder: of the version. plain: without optimisation, which takes most of the time, for a session only to look at. */
static proa_status open_file(OrtSession **out, const proa_ort *ort, const Inference__ModelConfig *c,
                             const proa_served_model *model, const char *folder, int device, bool plain,
                             proa_err *err)
{
    char path[PROA_PATH_MAX];
    OrtSessionOptions *options;
    PROA_TRY(proa_onnx_file(path, c, folder, proa_served_model_external(model), err));
    PROA_TRY(proa_onnx_session_options(&options, ort, c, model, folder, device, err));
    proa_status status =
        plain ? proa_ort_check(ort, ort->SetSessionGraphOptimizationLevel(options, ORT_OPTIMIZE_NONE), err)
              : PROA_OK;
    if (status == PROA_OK)
        status = proa_ort_check(ort, ort->CreateSession(ort->env, path, options, out), err);
    ort->ReleaseSessionOptions(options);
    return status;
}

proa_status proa_onnx_look(proa_onnx_io *io, const proa_ort *ort, const Inference__ModelConfig *config,
                           const char *version_path, proa_arena *arena, proa_err *err)
{
    OrtSession *session = NULL;
    bool plain = proa_config_uses_gpu(config);
    PROA_TRY(open_file(&session, ort, config, NULL, version_path, -1, plain, err));
    proa_status status = proa_onnx_read_io(io, ort, session, arena, err);
    if (status == PROA_OK && !plain) keep_session(session, ort, config, arena);
    else ort->ReleaseSession(session);
    return status;
}

proa_status proa_onnx_session_open(OrtSession **out, const proa_ort *ort, const proa_served_model *model,
                                   int device, proa_err *err)
{
    const Inference__ModelConfig *config = proa_served_model_config(model);
    *out = device < 0 ? take_kept(config) : NULL;
    if (*out) return PROA_OK;
    return open_file(out, ort, config, model, proa_served_model_version_path(model), device, false, err);
}
