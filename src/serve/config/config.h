/* SPDX-License-Identifier: Apache-2.0
 * config.h - everything between a model's folder and a configuration that can be used.
 *
 * proa_config_load(&config, NULL, &place, &options, &arena, err);  // read, name, backend, defaults, checks
 * backend->complete(config, version_path, &arena, err);            // the backend adds what its files define
 * proa_config_finish(config, &options, &arena, err);               // defaults again, instances, all checks
 *
 * Owner:   messages live in the arena that is given; options are read only during a call.
 * Threads: none of its own: pure functions over messages and the file system.
 * Errors:  texts are Triton's (reference: triton-inference-server/core), so a tool that matches them goes on
 * working. */
#ifndef PROA_SERVE_CONFIG_CONFIG_H
#define PROA_SERVE_CONFIG_CONFIG_H

#include "serve/server.h"

#define PROA_GPUS_UNCOUNTED (-2)

typedef struct proa_config_options {
    const char *config_name; /* --model-config-name: configs/NAME.pbtxt is read if there is one; NULL: config.pbtxt */
    const proa_setting *fills; /* --set: ${key} and $key in the file become value */
    int fills_count;
    bool no_auto_complete; /* the file must be there and complete */
    bool external_paths;   /* names of files may lead out of the model's folder */
    /* CUDA devices 0..gpus-1 that the model's backend can use; -1: this server, or this backend, has no use for GPUs;
     * PROA_GPUS_UNCOUNTED: they were not counted, the backend opens the devices of a group and reports missing ones. */
    int gpus;
    double compute_capability_min; /* named in an error text; 0: 6.0 */
} proa_config_options;

typedef struct proa_config_place {
    const char *name; /* of the model's folder; the file may repeat it */
    const char *path; /* of the folder, whose config.pbtxt is read */
    const char *json; /* instead of the file, a ModelConfig that a load request brings; NULL: the file */
} proa_config_place;

/* ---- in this order ---- */

/* Reads a configuration, sets name, platform, backend and default_model_filename from what is there, fills defaults and
 * checks. What a backend may still complete (inputs, outputs, max_batch_size) is not checked, unless
 * no_auto_complete. *provided (may be NULL): was there a configuration at all? If not, and the backend completes
 * nothing, the model cannot be loaded: NOT_FOUND "model configuration is not provided for model 'M'"
 * (proa_config_not_provided). */
PROA_MUST_CHECK proa_status proa_config_load(Inference__ModelConfig **out, bool *provided,
                                             const proa_config_place *place, const proa_config_options *options,
                                             proa_arena *arena, proa_err *err);
proa_status proa_config_not_provided(const Inference__ModelConfig *config, proa_err *err);
/* After the backend's `complete`: fills defaults, settles the instance groups, checks all. */
PROA_MUST_CHECK proa_status proa_config_finish(Inference__ModelConfig *config, const proa_config_options *options,
                                               proa_arena *arena, proa_err *err);

/* ---- the single steps ---- */

/* name (if empty), platform, backend, default_model_filename from each other, from the files of the first version and
 * from the model's name ("m.identity" is of backend identity). A Hugging Face folder is backend "engine". */
PROA_MUST_CHECK proa_status proa_config_find_backend(Inference__ModelConfig *config, const char *name,
                                                     const char *model_path, proa_arena *arena, proa_err *err);
/* Version policy, preferred batch sizes, idle time of sequences, pinned memory: what is absent gets its default. */
void proa_config_normalise(Inference__ModelConfig *config, proa_arena *arena);
/* At least one group, each with name, kind (never AUTO), count and GPUs. */
void proa_config_normalise_groups(Inference__ModelConfig *config, const proa_config_options *options,
                                  proa_arena *arena);

/* All but inputs, outputs and instance groups. */
PROA_MUST_CHECK proa_status proa_config_check(const Inference__ModelConfig *config, proa_err *err);
/* Models of an ensemble's steps by proa_name_check; names of files do not leave the model's folder, unless
 * `external`. */
PROA_MUST_CHECK proa_status proa_config_check_names(const Inference__ModelConfig *config, bool external,
                                                    proa_err *err);
/* A model's name, which is a folder of a repository: INVALID with Triton's texts. */
proa_status proa_name_check(const char *name, proa_err *err);
/* Inputs, outputs, batch inputs, batch outputs. */
PROA_MUST_CHECK proa_status proa_config_check_io(const Inference__ModelConfig *config, proa_err *err);
PROA_MUST_CHECK proa_status proa_config_check_groups(const Inference__ModelConfig *config,
                                                     const proa_config_options *options, proa_err *err);

/* ---- looking ---- */

/* The scheduler's block, or NULL if it is another one or none. */
static inline const Inference__ModelDynamicBatching *proa_config_dynamic(const Inference__ModelConfig *c)
{
    bool set = c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    return set ? c->dynamic_batching : NULL;
}
static inline const Inference__ModelSequenceBatching *proa_config_sequence(const Inference__ModelConfig *c)
{
    bool set = c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    return set ? c->sequence_batching : NULL;
}
static inline const Inference__ModelEnsembling *proa_config_ensemble(const Inference__ModelConfig *c)
{
    bool set = c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
    return set ? c->ensemble_scheduling : NULL;
}

/* An input or output by its name; NULL: there is none. */
const Inference__ModelInput *proa_config_input(const Inference__ModelConfig *config, const char *name);
const Inference__ModelOutput *proa_config_output(const Inference__ModelConfig *config, const char *name);
/* ${name} and $name become the value of the fill of that name; $$ becomes $; what has no fill stays. */
void proa_config_fill(proa_buf *out, proa_str text, const proa_setting *fills, int fills_count);
/* parameters[key].string_value; NULL if it is absent, empty or still a literal "${...}". */
const char *proa_config_parameter(const Inference__ModelConfig *config, const char *key);
bool proa_config_is_placeholder(const Inference__ModelConfig__ParametersEntry *parameter); /* "${...}" */
/* JSON as Triton gives it: defaults printed, enums by name, most 64-bit numbers as numbers. False if `out` is full. */
bool proa_config_print_json(proa_buf *out, const Inference__ModelConfig *config);
/* Whether a folder is a model itself, by the names of its files: config.json with *.safetensors or pytorch_model.bin, a
 * *.gguf, a folder of FasterTransformer or of OpenNMT-py (weights/open.c reads them); or a file NAME.gguf. */
bool proa_config_is_model_folder(const char *path);
/* Is this a file NAME.gguf, which is a model of its own? */
bool proa_config_is_gguf_file(const char *path);
/* "3" names a version folder; "03", "x", "" do not: then false. */
bool proa_config_version_folder(const char *folder, int64_t *version);

/* ---- ensembles: one model against the others (check_composing.c) ---- */

/* A model of the repository by name, as far as it is configured; NULL if there is none of that name. */
typedef const Inference__ModelConfig *proa_config_lookup(void *arg, const char *name);

/* Are all models of the steps there? INVALID "ensemble E contains models that are not available or ambiguous: a, b". */
PROA_MUST_CHECK proa_status proa_ensemble_check_models(const Inference__ModelConfig *ensemble,
                                                       proa_config_lookup *lookup, void *arg, proa_err *err);
/* Does an ensemble contain itself? INVALID "circular dependency between ensembles: A -> ... -> B -> A". Models that
 * lookup does not know are passed over. */
PROA_MUST_CHECK proa_status proa_ensemble_check_cycle(const Inference__ModelConfig *ensemble,
                                                      proa_config_lookup *lookup, void *arg, proa_err *err);
/* Names, types, shapes and batch sizes of what flows between the steps, against the loaded (complete) configurations of
 * their models, all of which lookup knows. *decoupled: does an output come from a decoupled model? Then the
 * ensemble must have a decoupled model_transaction_policy. */
PROA_MUST_CHECK proa_status proa_ensemble_check_flow(const Inference__ModelConfig *ensemble,
                                                     proa_config_lookup *lookup, void *arg, bool *decoupled,
                                                     proa_err *err);

#endif
