/* SPDX-License-Identifier: Apache-2.0
 * A model repository as files (files.h): the configuration of a model and of an ensemble of it, labels, the data of
 * warm-ups and of first states, and files of a version. The models load, or the index says why not; a model that serves
 * has a configuration, metadata and labels inside their lists. */
#include "backends/backends.h"
#include "base/alloc.h"
#include "base/log.h"
#include "files.h"
#include "proto/pbtxt.h"
#include "serve/config/config.h"
#include "serve/server.h"

static const char *const names[] = {"e/config.pbtxt", "m/config.pbtxt",       "m/labels.txt",
                                    "m/warmup/data",  "m/initial_state/data", "m/1/model.json",
                                    "m/1/ngrams",     "m/1/xgboost.json"};
static const fuzz_files files = {names, PROA_COUNT(names)};

/* No processes, and nothing that loads code. */
static const proa_backend *const backends[] = {
    &proa_backend_identity, &proa_backend_add_sub,   &proa_backend_repeat,
    &proa_backend_square,   &proa_backend_sequence,  &proa_backend_dyna_sequence,
    &proa_backend_fil,      &proa_backend_transform, NULL};

/* Whether the warm-ups and first states of an input are small: the limits would let a short text take gigabytes. */
static bool is_small(int64_t elements)
{
    return elements < 0 || elements < 1 << 20;
}

static bool is_cheap(const Inference__ModelConfig *c)
{
    for (size_t i = 0; i < c->n_model_warmup; i++) {
        const Inference__ModelWarmup *w = c->model_warmup[i];
        if ((w->count > 20 && w->count <= PROA_WARMUP_RUNS_MAX) || w->batch_size > 100) return false;
        for (size_t k = 0; k < w->n_inputs; k++) {
            const Inference__ModelWarmup__Input *in = w->inputs[k]->value;
            if (in && !is_small(proa_shape_elements(in->dims, (int32_t)in->n_dims))) return false;
        }
    }
    const Inference__ModelSequenceBatching *q = proa_config_sequence(c);
    for (size_t i = 0; q && i < q->n_state; i++)
        if (!is_small(proa_shape_elements(q->state[i]->dims, (int32_t)q->state[i]->n_dims))) return false;
    return true;
}

static bool is_cheap_file(const char *folder, const char *name)
{
    char path[PROA_PATH_MAX];
    proa_buf text;
    ProtobufCMessage *m = NULL;
    proa_arena arena;
    proa_arena_init(&arena);
    PROA_ASSERT(proa_path_join(path, folder, name, NULL) == PROA_OK);
    bool good = proa_file_read(&text, path, PROA_PBTXT_BYTES_MAX, NULL) != PROA_OK ||
                proa_pbtxt_parse(&m, &inference__model_config__descriptor, proa_buf_view(&text), name, &arena,
                                 NULL) != PROA_OK ||
                is_cheap((const Inference__ModelConfig *)m);
    proa_buf_release(&text);
    proa_arena_release(&arena);
    return good;
}

static void check_labels(proa_server *server, const Inference__ModelConfig *config)
{
    proa_served_model *model = NULL;
    if (proa_server_find(server, config->name, -1, &model, NULL) != PROA_OK) return;
    for (size_t i = 0; i < config->n_output; i++) {
        const char *output = config->output[i]->name, *label;
        PROA_ASSERT(!proa_served_model_label(model, output, -1));
        for (int64_t k = 0; (label = proa_served_model_label(model, output, k)); k++)
            PROA_ASSERT(strlen(label) <= (size_t)PROA_LABELS_BYTES_MAX);
    }
    proa_served_model_drop(model);
}

static void check_model(proa_server *server, const char *name, proa_arena *arena)
{
    Inference__ModelConfigResponse *config = NULL;
    Inference__ModelMetadataResponse *metadata = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_server_model_ready(server, name, -1, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0]);
        return;
    }
    PROA_ASSERT(proa_server_model_config(server, name, -1, &config, arena, &err) == PROA_OK);
    PROA_ASSERT(proa_server_model_metadata(server, name, -1, &metadata, arena, &err) == PROA_OK);
    PROA_ASSERT(strcmp(config->config->name, metadata->name) == 0);
    check_labels(server, config->config);
}

static void check_index(proa_server *server, proa_arena *arena)
{
    Inference__RepositoryIndexResponse *index = NULL;
    proa_err err = {.status = PROA_OK};
    PROA_ASSERT(proa_server_index(server, false, &index, arena, &err) == PROA_OK);
    for (size_t i = 0; i < index->n_models; i++) {
        const Inference__RepositoryIndexResponse__ModelIndex *m = index->models[i];
        PROA_ASSERT(strcmp(m->state, "READY") == 0 || m->reason[0]);
        check_model(server, m->name, arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const proa_log_settings quiet = {.error = false};
    const char *folder = files_write(&files, data, size);
    if (!is_cheap_file(folder, "m/config.pbtxt") || !is_cheap_file(folder, "e/config.pbtxt")) return 0;
    proa_server_options options = {
        .repositories = &folder, .repositories_count = 1, .backends = backends, .load_threads = 1};
    proa_server *server = NULL;
    proa_arena arena;
    proa_err err = {.status = PROA_OK};
    PROA_ASSERT(proa_log_set(&quiet, NULL) == PROA_OK);
    proa_arena_init(&arena);
    if (proa_server_new(&server, &options, &err) != PROA_OK) PROA_ASSERT(!server && err.text[0]);
    else {
        check_index(server, &arena);
        PROA_ASSERT(proa_server_stop(server, 5000));
        proa_server_free(server);
    }
    proa_arena_release(&arena);
    return 0;
}
