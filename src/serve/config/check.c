/* SPDX-License-Identifier: Apache-2.0
 * check.c - checks a configuration: backend, scheduling, instance groups, metrics; calls the other check files. */
#include "serve/config/check.h"

#include "base/limits.h"
#include "proto/message.h"
#include <string.h>

static bool is_platform(const Inference__ModelConfig *c, const char *platform)
{
    return strcmp(c->platform, platform) == 0;
}

/* The backends that Triton ships know their platforms; any other takes any. */
static bool pair_fits(const char *backend, const char *platform)
{
    static const char *const pairs[][2] = {
        {"tensorflow", "tensorflow_graphdef"}, {"tensorflow", "tensorflow_savedmodel"},
        {"tensorrt", "tensorrt_plan"},         {"onnxruntime", "onnxruntime_onnx"},
        {"pytorch", "pytorch_libtorch"},       {"pytorch", "torch_aoti"},
    };
    bool known = false;
    for (size_t i = 0; i < PROA_COUNT(pairs); i++) {
        if (strcmp(backend, pairs[i][0]) != 0) continue;
        if (strcmp(platform, pairs[i][1]) == 0) return true;
        known = true;
    }
    return !known;
}

static proa_status check_backend(const Inference__ModelConfig *c, proa_err *err)
{
    if (!c->backend[0] && !is_platform(c, "ensemble"))
        return PROA_FAIL(err, INVALID, "unexpected platform type '%s' for %s", c->platform, c->name);
    if (c->backend[0] && is_platform(c, "ensemble"))
        return PROA_FAIL(err, INVALID, "Ensemble model '%s' must have platform type '%s' and empty backend type",
                         c->name, c->platform);
    if (!pair_fits(c->backend, c->platform))
        return PROA_FAIL(err, INVALID, "unexpected 'platform' and 'backend' pair, got:%s, %s", c->platform,
                         c->backend);
    return PROA_OK;
}

static proa_status check_scheduling(const Inference__ModelConfig *c, proa_err *err)
{
    if (proa_config_dynamic(c)) return proa_config_check_dynamic(c, err);
    if (proa_config_sequence(c)) {
        if (c->response_cache && c->response_cache->enable)
            return PROA_FAIL(
                err, INVALID,
                "Response Cache does not currently support model %s with sequence batching scheduler. "
                "Please disable the response cache.",
                c->name);
        return proa_config_check_sequence(c, err);
    }
    return PROA_OK;
}

static proa_status check_metrics(const Inference__ModelMetrics *metrics, proa_err *err)
{
    for (size_t i = 0; i < metrics->n_metric_control; i++) {
        const Inference__ModelMetrics__MetricControl *c = metrics->metric_control[i];
        if (!c->metric_identifier)
            return PROA_FAIL(err, INVALID, "metric control must specify 'metric_identifier'");
        if (!c->metric_identifier->family[0])
            return PROA_FAIL(err, INVALID, "metric identifier must specify non-empty 'family'");
        if (c->metric_options_case != INFERENCE__MODEL_METRICS__METRIC_CONTROL__METRIC_OPTIONS_HISTOGRAM_OPTIONS)
            return PROA_FAIL(err, INVALID, "metric control must specify 'histogram_options'");
        if (c->histogram_options->n_buckets == 0)
            return PROA_FAIL(err, INVALID, "histogram options must specify non-empty 'buckets'");
    }
    return PROA_OK;
}

/* Tags become labels of metrics: one that Prometheus does not read would cost it the whole page, of all models. */
static proa_status check_tags(const Inference__ModelConfig *c, proa_err *err)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t bytes = 0;
    for (size_t i = 0; i < c->n_metric_tags; i++) {
        const Inference__ModelConfig__MetricTagsEntry *t = c->metric_tags[i];
        if (t->key[strspn(t->key, name)])
            return PROA_FAIL(
                err, INVALID, "metric tag '%s' for %s is no name of a label: letters, digits and underscores are",
                t->key, c->name);
        bytes += strlen(t->key) + 2 * strlen(t->value); /* of which each character may need a backslash */
    }
    if (bytes <= PROA_METRIC_LABELS_BYTES_MAX / 2) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the metric tags for %s are too long", c->name);
}

proa_status proa_config_check(const Inference__ModelConfig *c, proa_err *err)
{
    if (!c->name[0]) return PROA_FAIL(err, INVALID, "model configuration must specify 'name'");
    if (!proa_utf8_valid(proa_str_c(c->name))) /* neither gRPC nor Prometheus could carry it */
        return PROA_FAIL(err, INVALID, "the model's name is not UTF-8: '%s'", c->name);
    PROA_TRY(check_backend(c, err));
    if (c->max_batch_size < 0)
        return PROA_FAIL(err, INVALID, "'max_batch_size' must be non-negative value for %s", c->name);
    if (!c->version_policy) return PROA_FAIL(err, INVALID, "must specify 'version policy' for %s", c->name);
    PROA_TRY(check_scheduling(c, err));
    if (proa_config_ensemble(c)) PROA_TRY(proa_config_check_ensemble(c, err));
    else if (is_platform(c, "ensemble"))
        return PROA_FAIL(err, INVALID, "ensemble scheduling must be set for ensemble %s whose platform is %s",
                         c->name, c->platform);
    if (c->model_transaction_policy && c->model_transaction_policy->decoupled && c->response_cache &&
        c->response_cache->enable)
        return PROA_FAIL(
            err, INVALID,
            "Response Cache does not currently support model %s with 'decoupled' transaction policy. "
            "Please disable the response cache.",
            c->name);
    PROA_TRY(check_tags(c, err));
    return c->model_metrics ? check_metrics(c->model_metrics, err) : PROA_OK;
}

#define GROUP_FAIL(err, g, c, text)                                                                          \
    PROA_FAIL(err, INVALID, "instance group %s of model %s " text, (g)->name, (c)->name)

static proa_status check_gpus(const Inference__ModelConfig *c, const Inference__ModelInstanceGroup *g,
                              const proa_config_options *o, proa_err *err)
{
    char have[256] = "";
    if (o->gpus == PROA_GPUS_UNCOUNTED && g->n_gpus > 0) return PROA_OK;
    if (o->gpus < 0) return GROUP_FAIL(err, g, c, "has kind KIND_GPU but server does not support GPUs");
    if (g->n_gpus == 0 && o->gpus == 0)
        return GROUP_FAIL(err, g, c, "has kind KIND_GPU but no GPUs are available");
    if (g->n_gpus == 0) return GROUP_FAIL(err, g, c, "has kind KIND_GPU but specifies no GPUs");
    for (size_t i = 0; i < g->n_gpus; i++) {
        if (g->gpus[i] >= 0 && g->gpus[i] < o->gpus) continue;
        for (int gpu = 0; gpu < o->gpus; gpu++) {
            size_t used = strlen(have);
            snprintf(have + used, sizeof have - used, "%s%d", gpu ? ", " : "", gpu);
        }
        return PROA_FAIL(
            err, INVALID,
            "instance group %s of model %s specifies invalid or unsupported gpu id %d. GPUs with at least "
            "the minimum required CUDA compute compatibility of %f are: %s",
            g->name, c->name, g->gpus[i], o->compute_capability_min > 0 ? o->compute_capability_min : 6.0, have);
    }
    return PROA_OK;
}

static bool is_index(const char *s)
{
    return s[0] && strlen(s) < 10 && strspn(s, "0123456789") == strlen(s);
}

/* TensorRT's optimization profiles. */
static proa_status check_profiles(const Inference__ModelConfig *c, const Inference__ModelInstanceGroup *g,
                                  proa_err *err)
{
    if (g->n_profile > 0 && !is_platform(c, "tensorrt_plan"))
        return PROA_FAIL(
            err, INVALID, /* no space before "specifies": so does Triton say it */
            "instance group %s of model %s and platform %sspecifies profile field which is only supported "
            "for TensorRT models",
            g->name, c->name, c->platform);
    for (size_t i = 0; i < g->n_profile; i++)
        if (!is_index(g->profile[i]))
            return PROA_FAIL(
                err, INVALID,
                "instance group %s of model %s and platform %s specifies invalid profile %s. The field "
                "should contain the string representation of a non-negative integer.",
                g->name, c->name, c->platform, g->profile[i]);
    return PROA_OK;
}

static proa_status check_group(const Inference__ModelConfig *c, const Inference__ModelInstanceGroup *g,
                               const proa_config_options *o, proa_err *err)
{
    switch (g->kind) {
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU: PROA_TRY(check_gpus(c, g, o, err)); break;
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL:
        if (g->n_gpus) return GROUP_FAIL(err, g, c, "has kind KIND_MODEL but specifies one or more GPUs");
        break;
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU:
        if (g->n_gpus) return GROUP_FAIL(err, g, c, "has kind KIND_CPU but specifies one or more GPUs");
        break;
    default:
        return PROA_FAIL(err, INTERNAL, "instance group %s of model %s has unexpected kind KIND_AUTO",
                         g->name, c->name);
    }
    return check_profiles(c, g, err);
}

proa_status proa_config_check_groups(const Inference__ModelConfig *c, const proa_config_options *options,
                                     proa_err *err)
{
    int64_t instances = 0;
    if (proa_config_ensemble(c)) return PROA_OK;
    if (c->n_instance_group == 0)
        return PROA_FAIL(err, INVALID, "must specify one or more 'instance group's for %s", c->name);
    for (size_t i = 0; i < c->n_instance_group; i++) {
        const Inference__ModelInstanceGroup *g = c->instance_group[i];
        PROA_TRY(check_group(c, g, options, err));
        instances += (int64_t)g->count * (g->n_gpus ? (int64_t)g->n_gpus : 1);
        if (instances > PROA_INSTANCES_MAX)
            return PROA_FAIL(err, LIMIT, "the instance groups of %s ask for more than %d instances", c->name,
                             PROA_INSTANCES_MAX);
    }
    return PROA_OK;
}
