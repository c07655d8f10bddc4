/* SPDX-License-Identifier: Apache-2.0
 * paths.c - which names of models and files a configuration may hold: those given over the network stay inside the
 * repository. */
#include "serve/config/config.h"
#include <ctype.h>
#include <string.h>

/* ---- names of models: folders of the repository ---- */

proa_status proa_name_check(const char *name, proa_err *err)
{
    const char *first = name, *end = name + strlen(name);
    while (isspace((unsigned char)*first)) first++;
    while (end > first && isspace((unsigned char)end[-1])) end--;
    if (first == end)
        return PROA_FAIL(err, INVALID, "Model name cannot be empty. Please enter a valid name to deploy.");
    if ((end - first == 2 && memcmp(first, "..", 2) == 0) || strchr(name, '/') || strcmp(name, ".") == 0)
        return PROA_FAIL(err, INVALID,
                         "invalid model name '%s', model name must not contain path traversal characters", name);
    return PROA_OK;
}

/* ---- names of files, relative to a folder of the model ---- */

bool proa_path_climbs(const char *path)
{
    for (const char *p = path; *p; p += strcspn(p, "/"), p += *p == '/')
        if (strcspn(p, "/") == 2 && p[0] == '.' && p[1] == '.') return true;
    return false;
}

static proa_status check_file(const Inference__ModelConfig *c, const char *field, const char *file, proa_err *err)
{
    if (!proa_path_climbs(file)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s '%s' for %s leaves the model's folder, which needs --allow-external-paths",
                     field, file, c->name);
}

static proa_status check_warmup(const Inference__ModelConfig *c, const Inference__ModelWarmup *w, proa_err *err)
{
    for (size_t i = 0; i < w->n_inputs; i++) {
        const Inference__ModelWarmup__Input *in = w->inputs[i]->value;
        if (in && in->input_data_type_case == INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE)
            PROA_TRY(check_file(c, "input_data_file", in->input_data_file, err));
    }
    return PROA_OK;
}

static proa_status check_states(const Inference__ModelConfig *c, proa_err *err)
{
    const Inference__ModelSequenceBatching *q = proa_config_sequence(c);
    for (size_t i = 0; q && i < q->n_state; i++)
        for (size_t k = 0; k < q->state[i]->n_initial_state; k++) {
            const Inference__ModelSequenceBatching__InitialState *s = q->state[i]->initial_state[k];
            if (s->state_data_case == INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE)
                PROA_TRY(check_file(c, "data_file", s->data_file, err));
        }
    return PROA_OK;
}

static proa_status check_files(const Inference__ModelConfig *c, proa_err *err)
{
    PROA_TRY(check_file(c, "default_model_filename", c->default_model_filename, err));
    for (size_t i = 0; i < c->n_output; i++)
        PROA_TRY(check_file(c, "label_filename", c->output[i]->label_filename, err));
    for (size_t i = 0; i < c->n_model_warmup; i++) PROA_TRY(check_warmup(c, c->model_warmup[i], err));
    return check_states(c, err);
}

proa_status proa_config_check_names(const Inference__ModelConfig *c, bool external, proa_err *err)
{
    const Inference__ModelEnsembling *e = proa_config_ensemble(c);
    for (size_t i = 0; e && i < e->n_step; i++) {
        proa_err why = {.status = PROA_OK};
        if (proa_name_check(e->step[i]->model_name, &why) != PROA_OK)
            return PROA_FAIL(err, INVALID, "step %zu of ensemble '%s': %s", i, c->name, why.text);
    }
    return external ? PROA_OK : check_files(c, err);
}
