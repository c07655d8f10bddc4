/* SPDX-License-Identifier: Apache-2.0
 * v2_shm.c - the routes of shared memory regions. */
#include "api/http/v2.h"

#include "base/limits.h"
#include "net/grpc/wire.h"

enum { JSON_BYTES_MAX = 64 << 20 };

static bool shm_allowed(proa_api *api, proa_http_exchange *x)
{
    if (api->options.allow_client_shm) return true;
    proa_err err = {.status = PROA_OK};
    PROA_FAIL(&err, UNSUPPORTED,
              "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.");
    proa_http_fail(api, x, &err);
    return false;
}

static void answer_status(proa_api *api, proa_http_exchange *x, proa_status status, const proa_err *err)
{
    if (status == PROA_OK) proa_v2_done(x);
    else proa_http_fail(api, x, err);
}

/* ---- system ---- */

void proa_v2_shm_status(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    Inference__SystemSharedMemoryStatusResponse *reply;
    proa_buf out;
    if (proa_shm_status(api->server, path->region, &reply, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    proa_buf_char(&out, '[');
    for (size_t i = 0; i < reply->n_regions; i++) {
        const Inference__SystemSharedMemoryStatusResponse__RegionStatus *r = reply->regions[i]->value;
        proa_buf_printf(&out, i ? ",{\"name\":" : "{\"name\":");
        proa_buf_json_str(&out, proa_str_c(r->name));
        proa_buf_printf(&out, ",\"key\":");
        proa_buf_json_str(&out, proa_str_c(r->key));
        proa_buf_printf(&out, ",\"offset\":");
        proa_uint_json(&out, r->offset);
        proa_buf_printf(&out, ",\"byte_size\":");
        proa_uint_json(&out, r->byte_size);
        proa_buf_char(&out, '}');
    }
    proa_buf_char(&out, ']');
    proa_http_json(x, 200, &out);
}

typedef struct registration {
    proa_str key;
    bool has_key, has_size;
    uint64_t offset, bytes;
} registration;

static proa_status read_registration(proa_jread *j, registration *out, proa_err *err)
{
    bool more;
    proa_str key;
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) break;
        if (proa_str_is(key, "key")) {
            PROA_TRY(proa_jread_name(j, "", &out->key, err));
            out->has_key = true;
        } else if (proa_str_is(key, "offset")) {
            PROA_TRY(proa_jread_uint(j, "", &out->offset, err));
        } else if (proa_str_is(key, "byte_size")) {
            PROA_TRY(proa_jread_uint(j, "", &out->bytes, err));
            out->has_size = true;
        } else PROA_TRY(proa_jread_skip(j, err));
    }
    PROA_TRY(proa_jread_finish(j, err));
    if (!out->has_key) return PROA_FAIL(err, INVALID, "Shared memory register request has no 'key' field");
    if (!out->has_size)
        return PROA_FAIL(err, INVALID, "Shared memory register request has no 'byte_size' field");
    return PROA_OK;
}

static proa_status register_region(proa_api *api, proa_http_exchange *x, const char *region, proa_err *err)
{
    proa_jread j;
    registration in = {.offset = 0};
    if (!region[0])
        return PROA_FAIL(err, INVALID, "'region name' is necessary to register system shared memory region");
    proa_v2_body(api, x, &j);
    PROA_TRY(read_registration(&j, &in, err));
    return proa_shm_register(api->server, region, in.key.ptr, in.offset, in.bytes, err);
}

void proa_v2_shm_register(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    if (!shm_allowed(api, x)) return;
    proa_status status = register_region(api, x, path->region, &err);
    answer_status(api, x, status, &err);
}

void proa_v2_shm_unregister(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    if (!shm_allowed(api, x)) return;
    proa_status status = proa_shm_unregister(api->server, path->region, &err);
    answer_status(api, x, status, &err);
}

/* ---- CUDA ---- */

void proa_v2_cuda_status(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    Inference__CudaSharedMemoryStatusResponse *reply;
    proa_buf out;
    if (proa_shm_status_cuda(api->server, path->region, &reply, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    proa_buf_char(&out, '[');
    for (size_t i = 0; i < reply->n_regions; i++) {
        const Inference__CudaSharedMemoryStatusResponse__RegionStatus *r = reply->regions[i]->value;
        proa_buf_printf(&out, i ? ",{\"name\":" : "{\"name\":");
        proa_buf_json_str(&out, proa_str_c(r->name));
        proa_buf_printf(&out, ",\"device_id\":");
        proa_uint_json(&out, r->device_id);
        proa_buf_printf(&out, ",\"byte_size\":");
        proa_uint_json(&out, r->byte_size);
        proa_buf_char(&out, '}');
    }
    proa_buf_char(&out, ']');
    proa_http_json(x, 200, &out);
}

typedef struct cuda_registration {
    proa_str handle; /* base64 */
    bool has_handle, has_device, has_size;
    uint64_t device, bytes;
} cuda_registration;

/* {"b64": TEXT} */
static proa_status read_handle(proa_jread *j, cuda_registration *out, proa_err *err)
{
    bool more;
    proa_str key;
    PROA_TRY(proa_jread_expect(j, "Unable to parse 'raw_handle'", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) return PROA_OK;
        if (proa_str_is(key, "b64")) {
            PROA_TRY(proa_jread_name(j, "Unable to parse 'b64'", &out->handle, err));
            out->has_handle = true;
        } else PROA_TRY(proa_jread_skip(j, err));
    }
}

static proa_status read_cuda_registration(proa_jread *j, cuda_registration *out, proa_err *err)
{
    bool more;
    proa_str key;
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) break;
        if (proa_str_is(key, "raw_handle")) {
            PROA_TRY(read_handle(j, out, err));
        } else if (proa_str_is(key, "device_id")) {
            PROA_TRY(proa_jread_uint(j, "", &out->device, err));
            out->has_device = true;
        } else if (proa_str_is(key, "byte_size")) {
            PROA_TRY(proa_jread_uint(j, "", &out->bytes, err));
            out->has_size = true;
        } else PROA_TRY(proa_jread_skip(j, err));
    }
    PROA_TRY(proa_jread_finish(j, err));
    const char *missing = !out->has_handle ? "raw_handle" : !out->has_device ? "device_id" : "byte_size";
    if (out->has_handle && out->has_device && out->has_size) return PROA_OK;
    return PROA_FAIL(err, INVALID, "Shared memory register request has no '%s' field", missing);
}

static proa_status register_cuda(proa_api *api, proa_http_exchange *x, const char *region, proa_err *err)
{
    proa_jread j;
    proa_str handle;
    cuda_registration in = {.device = 0};
    if (!region[0])
        return PROA_FAIL(err, INVALID, "'region name' is necessary to register cuda shared memory region");
    proa_v2_body(api, x, &j);
    PROA_TRY(read_cuda_registration(&j, &in, err));
    if (!proa_base64_decode(x->arena, in.handle, &handle) || in.device > INT32_MAX)
        return PROA_FAIL(err, INVALID, "failed to register CUDA shared memory region: '%s', %s", region,
                         in.device > INT32_MAX ? "no such device" : "the handle is not base64");
    return proa_shm_register_cuda(api->server, region, handle, (int64_t)in.device, in.bytes, err);
}

void proa_v2_cuda_register(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    if (!shm_allowed(api, x)) return;
    proa_status status = register_cuda(api, x, path->region, &err);
    answer_status(api, x, status, &err);
}

void proa_v2_cuda_unregister(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    if (!shm_allowed(api, x)) return;
    proa_status status = proa_shm_unregister_cuda(api->server, path->region, &err);
    answer_status(api, x, status, &err);
}
