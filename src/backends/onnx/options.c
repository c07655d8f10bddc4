/* SPDX-License-Identifier: Apache-2.0
 * options.c - session and run options from the command line and from config.pbtxt, by the names and values of Triton's
 * onnxruntime backend. */
#include "backends/onnx/onnx.h"
#include "base/alloc.h"
#include "serve/config/config.h"
#include <string.h>

typedef Inference__ModelOptimizationPolicy__ExecutionAccelerators accelerators;
typedef Inference__ModelOptimizationPolicy__ExecutionAccelerators__Accelerator accelerator;

/* ---- execution providers ---- */

/* Names and values for an execution provider. */
typedef struct pairs {
    const char *keys[PROA_ONNX_PROVIDER_OPTIONS_MAX], *values[PROA_ONNX_PROVIDER_OPTIONS_MAX];
    size_t count;
    char device[16];
} pairs;

static proa_status add_pair(pairs *p, const char *key, const char *value, proa_err *err)
{
    size_t at = 0;
    while (at < p->count && strcmp(p->keys[at], key) != 0) at++;
    if (at == PROA_ONNX_PROVIDER_OPTIONS_MAX)
        return PROA_FAIL(err, LIMIT, "an execution accelerator has more than %d parameters",
                         PROA_ONNX_PROVIDER_OPTIONS_MAX);
    p->keys[at] = key, p->values[at] = value;
    if (at == p->count) p->count++;
    return PROA_OK;
}

static proa_status add_device(pairs *p, int device, proa_err *err)
{
    snprintf(p->device, sizeof p->device, "%d", device);
    return add_pair(p, "device_id", p->device, err);
}

/* Triton's names of TensorRT's options where they differ from ONNX Runtime's. */
static const struct {
    const char *triton, *ort;
} tensorrt_names[] = {
    {"max_workspace_size_bytes", "trt_max_workspace_size"},
    {"int8_calibration_table_name", "trt_int8_calibration_table_name"},
    {"int8_use_native_calibration_table", "trt_int8_use_native_calibration_table"},
};

static proa_status add_precision(pairs *p, const char *mode, proa_err *err)
{
    static const char *const modes[][2] = {
        {"FP16", "trt_fp16_enable"}, {"BF16", "trt_bf16_enable"}, {"INT8", "trt_int8_enable"}};
    for (size_t i = 0; i < PROA_COUNT(modes); i++)
        if (strcmp(mode, modes[i][0]) == 0) return add_pair(p, modes[i][1], "1", err);
    if (strcmp(mode, "FP32") == 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "unsupported precision mode '%s' is requested", mode);
}

static proa_status add_tensorrt_pair(pairs *p, const char *key, const char *value, proa_err *err)
{
    if (strcmp(key, "precision_mode") == 0) return add_precision(p, value, err);
    for (size_t i = 0; i < PROA_COUNT(tensorrt_names); i++)
        if (strcmp(key, tensorrt_names[i].triton) == 0) return add_pair(p, tensorrt_names[i].ort, value, err);
    if (strncmp(key, "trt_", 4) == 0) return add_pair(p, key, value, err); /* checked by the provider */
    return PROA_FAIL(err, INVALID, "unknown parameter '%s' is provided for TensorRT Execution Accelerator", key);
}

static proa_status append_tensorrt(OrtSessionOptions *options, const proa_ort *ort, const accelerator *a,
                                   int device, proa_err *err)
{
    pairs p = {.count = 0};
    OrtTensorRTProviderOptionsV2 *trt = NULL;
    for (size_t i = 0; i < a->n_parameters; i++)
        PROA_TRY(add_tensorrt_pair(&p, a->parameters[i]->key, a->parameters[i]->value, err));
    PROA_TRY(add_device(&p, device, err));
    PROA_TRY(proa_ort_check(ort, ort->CreateTensorRTProviderOptions(&trt), err));
    proa_status status = proa_ort_check(ort, ort->UpdateTensorRTProviderOptions(trt, p.keys, p.values, p.count),
                                        err);
    if (status == PROA_OK)
        status = proa_ort_check(ort, ort->SessionOptionsAppendExecutionProvider_TensorRT_V2(options, trt), err);
    ort->ReleaseTensorRTProviderOptions(trt);
    return status;
}

/* Parameters of the model that Triton had before the accelerator `cuda`; numbers become ONNX Runtime's words. */
static proa_status add_old_cuda(pairs *p, const Inference__ModelConfig *c, proa_err *err)
{
    static const char *const search[] = {"EXHAUSTIVE", "HEURISTIC", "DEFAULT"}, *const strategy[] = {
                                                                                    "kNextPowerOfTwo",
                                                                                    "kSameAsRequested"};
    int64_t n = -1;
    PROA_TRY(proa_onnx_parameter_number(&n, c, "cudnn_conv_algo_search", 2, err));
    if (n >= 0) PROA_TRY(add_pair(p, "cudnn_conv_algo_search", search[n], err));
    n = -1;
    PROA_TRY(proa_onnx_parameter_number(&n, c, "arena_extend_strategy", 1, err));
    if (n >= 0) PROA_TRY(add_pair(p, "arena_extend_strategy", strategy[n], err));
    const char *limit = proa_config_parameter(c, "gpu_mem_limit");
    const char *stream = proa_config_parameter(c, "do_copy_in_default_stream");
    if (limit) PROA_TRY(add_pair(p, "gpu_mem_limit", limit, err));
    return stream ? add_pair(p, "do_copy_in_default_stream", stream, err) : PROA_OK;
}

/* a: the accelerator `cuda` of the configuration, or NULL. */
static proa_status append_cuda(OrtSessionOptions *options, const proa_ort *ort,
                               const Inference__ModelConfig *c, const accelerator *a, int device, proa_err *err)
{
    pairs p = {.count = 0};
    OrtCUDAProviderOptionsV2 *cuda = NULL;
    PROA_TRY(add_old_cuda(&p, c, err));
    for (size_t i = 0; a && i < a->n_parameters; i++)
        PROA_TRY(add_pair(&p, a->parameters[i]->key, a->parameters[i]->value, err));
    PROA_TRY(add_device(&p, device, err));
    PROA_TRY(proa_ort_check(ort, ort->CreateCUDAProviderOptions(&cuda), err));
    proa_status status = proa_ort_check(ort, ort->UpdateCUDAProviderOptions(cuda, p.keys, p.values, p.count),
                                        err);
    if (status == PROA_OK)
        status = proa_ort_check(ort, ort->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda), err);
    ort->ReleaseCUDAProviderOptions(cuda);
    return status;
}

static proa_status append_openvino(OrtSessionOptions *options, const proa_ort *ort, const accelerator *a,
                                   proa_err *err)
{
    pairs p = {.count = 0};
    PROA_TRY(add_pair(&p, "device_type", "CPU", err));
    for (size_t i = 0; i < a->n_parameters; i++)
        PROA_TRY(add_pair(&p, a->parameters[i]->key, a->parameters[i]->value, err));
    return proa_ort_check(
        ort, ort->SessionOptionsAppendExecutionProvider(options, "OpenVINO", p.keys, p.values, p.count), err);
}

static proa_status unknown_accelerator(const accelerator *a, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "unknown Execution Accelerator '%s' is requested", a->name);
}

/* Accelerators of GPUs apply to instances on a GPU; their names are checked in any case. CUDA comes last: it executes
 * what those before it do not. */
static proa_status append_gpu(OrtSessionOptions *options, const proa_ort *ort, const Inference__ModelConfig *c,
                              const accelerators *list, int device, proa_err *err)
{
    const accelerator *cuda = NULL;
    for (size_t i = 0; list && i < list->n_gpu_execution_accelerator; i++) {
        const accelerator *a = list->gpu_execution_accelerator[i];
        if (strcmp(a->name, "cuda") == 0) cuda = a;
        else if (strcmp(a->name, "tensorrt") != 0) return unknown_accelerator(a, err);
        else if (device >= 0) PROA_TRY(append_tensorrt(options, ort, a, device, err));
    }
    return device >= 0 ? append_cuda(options, ort, c, cuda, device, err) : PROA_OK;
}

static proa_status append_providers(OrtSessionOptions *options, const proa_ort *ort,
                                    const Inference__ModelConfig *c, int device, proa_err *err)
{
    const accelerators *list = c->optimization ? c->optimization->execution_accelerators : NULL;
    PROA_TRY(append_gpu(options, ort, c, list, device, err));
    for (size_t i = 0; list && i < list->n_cpu_execution_accelerator; i++) {
        const accelerator *a = list->cpu_execution_accelerator[i];
        if (strcmp(a->name, "openvino") != 0) return unknown_accelerator(a, err);
        PROA_TRY(append_openvino(options, ort, a, err));
    }
    return PROA_OK;
}

/* ---- session options ---- */

/* optimization { graph { level } }: -1 basic, 1 extended, 2 none; absent or 0: all. */
static int graph_level(const Inference__ModelConfig *c)
{
    int level = c->optimization && c->optimization->graph ? c->optimization->graph->level : 0;
    switch (level) {
    case -1: return ORT_OPTIMIZE_BASIC;
    case 1: return ORT_OPTIMIZE_EXTENDED;
    case 2: return ORT_OPTIMIZE_NONE;
    default: return ORT_OPTIMIZE_ALL;
    }
}

/* With a global thread pool the model's own counts do not apply. */
static proa_status set_threads(OrtSessionOptions *options, const proa_ort *ort,
                               const Inference__ModelConfig *c, proa_err *err)
{
    int64_t mode = ORT_SEQUENTIAL, intra = 0, inter = 0;
    PROA_TRY(proa_onnx_parameter_number(&mode, c, "execution_mode", ORT_PARALLEL, err));
    PROA_TRY(proa_onnx_parameter_number(&intra, c, "intra_op_thread_count", PROA_ONNX_THREADS_MAX, err));
    PROA_TRY(proa_onnx_parameter_number(&inter, c, "inter_op_thread_count", PROA_ONNX_THREADS_MAX, err));
    PROA_TRY(proa_ort_check(ort, ort->SetSessionExecutionMode(options, (int)mode), err));
    if (ort->global_threads) return proa_ort_check(ort, ort->DisablePerSessionThreads(options), err);
    if (intra) PROA_TRY(proa_ort_check(ort, ort->SetIntraOpNumThreads(options, (int)intra), err));
    return inter ? proa_ort_check(ort, ort->SetInterOpNumThreads(options, (int)inter), err) : PROA_OK;
}

static proa_status set_memory(OrtSessionOptions *options, const proa_ort *ort,
                              const Inference__ModelConfig *c, proa_err *err)
{
    bool given, on = false;
    PROA_TRY(proa_onnx_parameter_true(&given, &on, c, "enable_mem_arena", err));
    if (given)
        PROA_TRY(proa_ort_check(ort, (on ? ort->EnableCpuMemArena : ort->DisableCpuMemArena)(options), err));
    PROA_TRY(proa_onnx_parameter_true(&given, &on, c, "enable_mem_pattern", err));
    if (!given) return PROA_OK;
    return proa_ort_check(ort, (on ? ort->EnableMemPattern : ort->DisableMemPattern)(options), err);
}

/* Parameters "session.*" are entries of ONNX Runtime's session configuration, but not those that name files, since
 * a configuration can come with a request. */
static proa_status set_entries(OrtSessionOptions *options, const proa_ort *ort,
                               const Inference__ModelConfig *c, proa_err *err)
{
    for (size_t i = 0; i < c->n_parameters; i++) {
        const char *key = c->parameters[i]->key, *value;
        if (strncmp(key, "session.", strlen("session.")) != 0) continue;
        if (strstr(key, "path") || strstr(key, "file"))
            return PROA_FAIL(err, INVALID, "parameter '%s' of model '%s' names a file, which is not allowed",
                             key, c->name);
        value = proa_config_parameter(c, key);
        if (value) PROA_TRY(proa_ort_check(ort, ort->AddSessionConfigEntry(options, key, value), err));
    }
    return PROA_OK;
}

/* Libraries of custom operators: model_operations { op_library_filename }. */
static proa_status add_libraries(OrtSessionOptions *options, const proa_ort *ort,
                                 const Inference__ModelConfig *c, const proa_served_model *model,
                                 const char *folder, proa_err *err)
{
    char path[PROA_PATH_MAX];
    for (size_t i = 0; c->model_operations && i < c->model_operations->n_op_library_filename; i++) {
        const char *name = c->model_operations->op_library_filename[i];
        PROA_TRY(proa_served_model_resolve(path, model, folder, "op_library_filename", name, err));
        PROA_TRY(proa_ort_check(ort, ort->RegisterCustomOpsLibrary_V2(options, path), err));
    }
    return PROA_OK;
}

proa_status proa_onnx_session_options(OrtSessionOptions **out, const proa_ort *ort,
                                      const Inference__ModelConfig *config, const proa_served_model *model,
                                      const char *folder, int device, proa_err *err)
{
    OrtSessionOptions *options = NULL;
    PROA_TRY(proa_ort_check(ort, ort->CreateSessionOptions(&options), err));
    proa_status status;
    PROA_TRY_OUT(proa_ort_check(ort, ort->SetSessionGraphOptimizationLevel(options, graph_level(config)), err));
    PROA_TRY_OUT(set_threads(options, ort, config, err));
    PROA_TRY_OUT(set_memory(options, ort, config, err));
    PROA_TRY_OUT(set_entries(options, ort, config, err));
    PROA_TRY_OUT(append_providers(options, ort, config, device, err));
    PROA_TRY_OUT(add_libraries(options, ort, config, model, folder, err));
    *out = options;
    return PROA_OK;
out:
    ort->ReleaseSessionOptions(options);
    return status;
}

proa_status proa_onnx_run_options(OrtRunOptions **out, const proa_ort *ort,
                                  const Inference__ModelConfig *config, proa_err *err)
{
    static const char *const key = "memory.enable_memory_arena_shrinkage";
    const char *value = proa_config_parameter(config, key);
    OrtRunOptions *options = NULL;
    PROA_TRY(proa_ort_check(ort, ort->CreateRunOptions(&options), err));
    proa_status status = value ? proa_ort_check(ort, ort->AddRunConfigEntry(options, key, value), err) : PROA_OK;
    if (status == PROA_OK) *out = options;
    else ort->ReleaseRunOptions(options);
    return status;
}
