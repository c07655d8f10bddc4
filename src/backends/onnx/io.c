/* SPDX-License-Identifier: Apache-2.0
 * io.c - the inputs and outputs of a model, read from its session. */
#include "backends/onnx/onnx.h"
#include <string.h>

/* ONNXTensorElementDataType: those of KServe, and names of the others for errors. */
static const struct {
    proa_type type;
    const char *name;
} element_types[] = {
    [1] = {PROA_TYPE_FP32, "FLOAT"},
    [2] = {PROA_TYPE_UINT8, "UINT8"},
    [3] = {PROA_TYPE_INT8, "INT8"},
    [4] = {PROA_TYPE_UINT16, "UINT16"},
    [5] = {PROA_TYPE_INT16, "INT16"},
    [6] = {PROA_TYPE_INT32, "INT32"},
    [7] = {PROA_TYPE_INT64, "INT64"},
    [8] = {PROA_TYPE_BYTES, "STRING"},
    [9] = {PROA_TYPE_BOOL, "BOOL"},
    [10] = {PROA_TYPE_FP16, "FLOAT16"},
    [11] = {PROA_TYPE_FP64, "DOUBLE"},
    [12] = {PROA_TYPE_UINT32, "UINT32"},
    [13] = {PROA_TYPE_UINT64, "UINT64"},
    [14] = {0, "COMPLEX64"},
    [15] = {0, "COMPLEX128"},
    [16] = {PROA_TYPE_BF16, "BFLOAT16"},
    [17] = {0, "FLOAT8E4M3FN"},
    [18] = {0, "FLOAT8E4M3FNUZ"},
    [19] = {0, "FLOAT8E5M2"},
    [20] = {0, "FLOAT8E5M2FNUZ"},
    [21] = {0, "UINT4"},
    [22] = {0, "INT4"},
    [23] = {0, "FLOAT4E2M1"},
    [24] = {0, "UINT2"},
    [25] = {0, "INT2"},
    [26] = {0, "FLOAT8E8M0"},
};

static const char *kind_name(int kind)
{
    switch (kind) {
    case ORT_KIND_SEQUENCE: return "is a sequence";
    case ORT_KIND_MAP: return "is a map";
    case ORT_KIND_SPARSE: return "is a sparse tensor";
    case ORT_KIND_OPTIONAL: return "is an optional value";
    default: return "is no tensor";
    }
}

static proa_status read_shape(proa_onnx_tensor *t, const proa_ort *ort, const OrtTensorTypeAndShapeInfo *info,
                              proa_arena *arena, proa_err *err)
{
    size_t rank;
    PROA_TRY(proa_ort_check(ort, ort->GetDimensionsCount(info, &rank), err));
    if (rank > PROA_SERVE_RANK_MAX) {
        t->unfit = proa_arena_printf(arena, "has %zu dimensions, of which requests can have %d", rank,
                                     PROA_SERVE_RANK_MAX);
        return PROA_OK;
    }
    t->rank = (int32_t)rank;
    PROA_TRY(proa_ort_check(ort, ort->GetDimensions(info, t->dims, rank), err));
    for (size_t i = 0; i < rank; i++)
        if (t->dims[i] < 0) t->dims[i] = -1;
    return PROA_OK;
}

static proa_status read_type(proa_onnx_tensor *t, const proa_ort *ort, const OrtTypeInfo *info,
                             proa_arena *arena, proa_err *err)
{
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    int kind = ORT_KIND_UNKNOWN;
    PROA_TRY(proa_ort_check(ort, ort->GetOnnxTypeFromTypeInfo(info, &kind), err));
    if (kind != ORT_KIND_TENSOR) {
        t->unfit = kind_name(kind);
        return PROA_OK;
    }
    PROA_TRY(proa_ort_check(ort, ort->CastTypeInfoToTensorInfo(info, &tensor), err));
    if (!tensor) return PROA_FAIL(err, INTERNAL, "onnx runtime gives no type of '%s'", t->name);
    PROA_TRY(proa_ort_check(ort, ort->GetTensorElementType(tensor, &t->onnx_type), err));
    bool known = t->onnx_type > 0 && t->onnx_type < (int)PROA_COUNT(element_types);
    t->type = known ? element_types[t->onnx_type].type : PROA_TYPE_INVALID;
    if (t->type == PROA_TYPE_INVALID)
        t->unfit = known ? proa_arena_printf(arena, "has elements of type %s", element_types[t->onnx_type].name)
                         : proa_arena_printf(arena, "has elements of type number %d", t->onnx_type);
    return t->unfit ? PROA_OK : read_shape(t, ort, tensor, arena, err);
}

typedef struct io_getters {
    OrtStatus *(*name)(const OrtSession *session, size_t index, OrtAllocator *allocator, char **out);
    OrtStatus *(*type)(const OrtSession *session, size_t index, OrtTypeInfo **out);
} io_getters;

static proa_status read_tensor(proa_onnx_tensor *t, const proa_ort *ort, const OrtSession *session,
                               const io_getters *get, size_t index, proa_arena *arena, proa_err *err)
{
    char *name = NULL;
    OrtTypeInfo *info = NULL;
    *t = (proa_onnx_tensor){.type = PROA_TYPE_INVALID};
    PROA_TRY(proa_ort_check(ort, get->name(session, index, ort->allocator, &name), err));
    t->name = proa_arena_strdup(arena, proa_str_c(name));
    PROA_TRY(proa_ort_check(ort, ort->AllocatorFree(ort->allocator, name), err));
    PROA_TRY(proa_ort_check(ort, get->type(session, index, &info), err));
    proa_status status = read_type(t, ort, info, arena, err);
    ort->ReleaseTypeInfo(info);
    return status;
}

proa_status proa_onnx_read_io(proa_onnx_io *out, const proa_ort *ort, const OrtSession *session,
                              proa_arena *arena, proa_err *err)
{
    const io_getters inputs = {ort->SessionGetInputName, ort->SessionGetInputTypeInfo},
                     values = {ort->SessionGetOverridableInitializerName,
                               ort->SessionGetOverridableInitializerTypeInfo},
                     outputs = {ort->SessionGetOutputName, ort->SessionGetOutputTypeInfo};
    size_t n_inputs, n_values, n_outputs;
    PROA_TRY(proa_ort_check(ort, ort->SessionGetInputCount(session, &n_inputs), err));
    PROA_TRY(proa_ort_check(ort, ort->SessionGetOverridableInitializerCount(session, &n_values), err));
    PROA_TRY(proa_ort_check(ort, ort->SessionGetOutputCount(session, &n_outputs), err));
    if (n_inputs > PROA_TENSORS_PER_REQUEST_MAX || n_outputs > PROA_TENSORS_PER_REQUEST_MAX)
        return PROA_FAIL(err, LIMIT, "the model has %zu inputs and %zu outputs, at most %d of each can be served",
                         n_inputs, n_outputs, PROA_TENSORS_PER_REQUEST_MAX);
    *out = (proa_onnx_io){
        .required = (int)n_inputs, .inputs_count = (int)(n_inputs + n_values), .outputs_count = (int)n_outputs};
    out->inputs = PROA_ARENA_NEW(arena, proa_onnx_tensor, (int64_t)(n_inputs + n_values));
    out->outputs = PROA_ARENA_NEW(arena, proa_onnx_tensor, (int64_t)n_outputs);
    for (size_t i = 0; i < n_inputs; i++)
        PROA_TRY(read_tensor(&out->inputs[i], ort, session, &inputs, i, arena, err));
    for (size_t i = 0; i < n_values; i++) {
        PROA_TRY(read_tensor(&out->inputs[n_inputs + i], ort, session, &values, i, arena, err));
        out->inputs[n_inputs + i].initializer = true;
    }
    for (size_t i = 0; i < n_outputs; i++)
        PROA_TRY(read_tensor(&out->outputs[i], ort, session, &outputs, i, arena, err));
    return PROA_OK;
}

proa_onnx_tensor *proa_onnx_find(proa_onnx_tensor *tensors, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0) return &tensors[i];
    return NULL;
}
