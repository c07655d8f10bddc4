/* SPDX-License-Identifier: Apache-2.0
 * tensors.cpp - between the tensors of the host and those of torch. */
#include "tensors.h"
#include "device.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>

namespace proa_torch
{

/* ---- types ---- */

struct TypeRow {
    proa_backend_type type;
    at::ScalarType torch;
    const char *name;
};
static const TypeRow type_rows[] = {
    {PROA_BACKEND_BOOL, at::kBool, "BOOL"},       {PROA_BACKEND_UINT8, at::kByte, "UINT8"},
    {PROA_BACKEND_INT8, at::kChar, "INT8"},       {PROA_BACKEND_INT16, at::kShort, "INT16"},
    {PROA_BACKEND_INT32, at::kInt, "INT32"},      {PROA_BACKEND_INT64, at::kLong, "INT64"},
    {PROA_BACKEND_FP16, at::kHalf, "FP16"},       {PROA_BACKEND_FP32, at::kFloat, "FP32"},
    {PROA_BACKEND_FP64, at::kDouble, "FP64"},     {PROA_BACKEND_BF16, at::kBFloat16, "BF16"},
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    {PROA_BACKEND_UINT16, at::kUInt16, "UINT16"}, {PROA_BACKEND_UINT32, at::kUInt32, "UINT32"},
    {PROA_BACKEND_UINT64, at::kUInt64, "UINT64"},
#endif
};

static const char *type_name(proa_backend_type type)
{
    for (const TypeRow &row : type_rows)
        if (row.type == type) return row.name;
    return type == PROA_BACKEND_BYTES ? "STRING" : "INVALID";
}

static at::ScalarType torch_type(const proa_backend_tensor &t)
{
    for (const TypeRow &row : type_rows)
        if (row.type == t.type) return row.torch;
    fail(PROA_INVALID, "input '%s' has TYPE_%s, which this torch does not have", t.name, type_name(t.type));
}

static const TypeRow *find_type(at::ScalarType type)
{
    for (const TypeRow &row : type_rows)
        if (row.torch == type) return &row;
    return nullptr;
}

/* ---- inputs ---- */

Batch make_batch(proa_backend_request *const *requests, int count, bool batched)
{
    Batch b{requests, count, batched, {}, 0};
    for (int i = 0; i < count; i++) {
        proa_backend_tensor first;
        bool has = host->request_input(requests[i], 0, &first) && first.rank > 0;
        b.rows.push_back(batched && has ? first.shape[0] : 1);
        b.total += b.rows.back();
    }
    return b;
}

/* An input as a tensor over its own memory. */
static at::Tensor view_of(const proa_backend_tensor &t, int32_t device)
{
    at::ScalarType type = torch_type(t);
    at::IntArrayRef shape(t.shape, static_cast<size_t>(t.rank));
    at::TensorOptions options = at::TensorOptions(type).device(
        device < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
    if (!t.bytes) return at::empty(shape, options);
    bool aligned = reinterpret_cast<uintptr_t>(t.data) % c10::elementSize(type) == 0;
    if (aligned) return at::from_blob(const_cast<void *>(t.data), shape, options);
    int64_t bytes[1] = {static_cast<int64_t>(t.bytes)};
    at::TensorOptions as_bytes = options.dtype(at::kByte);
    return at::from_blob(const_cast<void *>(t.data), bytes, as_bytes).clone().view(type).view(shape);
}

/* Input `name` of a request and its device; false: it has none. */
static bool find_input(const proa_backend_request *request, const std::string &name, proa_backend_tensor *t,
                       int32_t *device)
{
    for (int32_t i = 0; host->request_input(request, i, t); i++)
        if (name == t->name) {
            *device = host->request_input_device(request, i);
            return true;
        }
    return false;
}

/* The parts of the requests that bring it. Inputs that Proa adds for a whole batch are of its first request. */
static std::vector<at::Tensor> views_of(const Batch &batch, const Input &in)
{
    std::vector<at::Tensor> views;
    for (int i = 0; i < batch.count; i++) {
        proa_backend_tensor t;
        int32_t device = -1;
        if (!find_input(batch.requests[i], in.name, &t, &device)) continue;
        at::Tensor view = view_of(t, device);
        views.push_back(in.ragged ? view.reshape({-1}) : view);
    }
    return views;
}

static at::Tensor join(const std::vector<at::Tensor> &views, c10::Device device, bool copy)
{
    for (const at::Tensor &view : views)
        if (view.is_cpu() && !device.is_cpu()) host->count_device_copy(false, view.nbytes());
    if (views.size() > 1) return at::cat(views).to(device);
    at::Tensor one = views[0].to(device);
    return copy && one.is_alias_of(views[0]) ? one.clone() : one;
}

/* The elements of a BYTES input, each behind its length. */
static void add_strings(c10::List<std::string> *list, const proa_backend_tensor &t)
{
    const char *data = static_cast<const char *>(t.data);
    for (size_t at = 0; at + 4 <= t.bytes;) {
        uint32_t length;
        std::memcpy(&length, data + at, 4);
        at += 4;
        if (length > t.bytes - at) fail(PROA_INVALID, "input '%s' has an element beyond its end", t.name);
        list->push_back(std::string(data + at, length));
        at += length;
    }
}

static std::optional<c10::IValue> strings_of(const Batch &batch, const Input &in)
{
    c10::List<std::string> list;
    bool found = false;
    for (int i = 0; i < batch.count; i++) {
        proa_backend_tensor t;
        int32_t device;
        if (!find_input(batch.requests[i], in.name, &t, &device)) continue;
        found = true;
        add_strings(&list, t);
    }
    return found ? std::optional<c10::IValue>(list) : std::nullopt;
}

std::vector<Given> gather(const Batch &batch, const std::vector<Input> &inputs, c10::Device device, bool copy)
{
    std::vector<Given> given;
    for (const Input &in : inputs) {
        if (in.type == PROA_BACKEND_BYTES) {
            if (auto list = strings_of(batch, in)) given.push_back({in.place, *list});
            continue;
        }
        std::vector<at::Tensor> views = views_of(batch, in);
        if (!views.empty()) given.push_back({in.place, join(views, device, copy)});
    }
    return given;
}

/* ---- outputs ---- */

/* An input, a parameter or another output, or memory that torch does not own: it may change or go away. Two hold a
 * result that nothing else holds: the results and the caller. */
static bool is_held(const at::Tensor &t)
{
    return t.use_count() > 2 || t.storage().use_count() > 1 || !t.storage().data_ptr().get_context();
}

/* The tensor as a dense one that can be sent without a copy. */
static at::Tensor own(const at::Tensor &t)
{
    if (!t.is_contiguous()) return t.contiguous();
    return t.numel() && is_held(t) ? t.clone(at::MemoryFormat::Contiguous) : t;
}

static void check_tensor(const Batch &batch, const Output &output, const at::Tensor &t)
{
    const TypeRow *type = find_type(t.scalar_type());
    if (!type || type->type != output.type)
        fail(PROA_INVALID, "configuration expects datatype TYPE_%s for output '%s', model provides TYPE_%s",
             type_name(output.type), output.name.c_str(), type ? type->name : c10::toString(t.scalar_type()));
    if (t.dim() == 0)
        fail(PROA_INVALID, "output '%s' is a scalar which is not supported.", output.name.c_str());
    if (batch.batched && t.size(0) != batch.total)
        fail(PROA_INVALID, "output '%s' has %lld rows for a batch of %lld", output.name.c_str(),
             static_cast<long long>(t.size(0)), static_cast<long long>(batch.total));
}

static void release_tensor(void *arg)
{
    delete static_cast<at::Tensor *>(arg);
}

/* Sends rows of a dense tensor from its own memory: the response holds the tensor. */
static void send_rows(proa_backend_response *response, const Output &output, const at::Tensor &rows)
{
    proa_err err = {};
    const proa_backend_memory *memory = rows.is_cpu() ? nullptr : device_memory(rows.device().index());
    auto *held = new at::Tensor(rows);
    proa_status status = host->response_output_of(
        response, output.name.c_str(), output.type, rows.sizes().data(), static_cast<int32_t>(rows.dim()),
        rows.const_data_ptr(), rows.nbytes(), memory, release_tensor, held, &err);
    if (status != PROA_OK) throw Failure(status, err.text);
}

static void scatter_tensor(const Batch &batch, const std::vector<proa_backend_response *> &responses,
                           const Output &output, const at::Tensor &t)
{
    check_tensor(batch, output, t);
    at::Tensor dense = own(t);
    int64_t at = 0;
    for (int i = 0; i < batch.count; at += batch.rows[static_cast<size_t>(i++)])
        if (host->request_wants(batch.requests[i], output.name.c_str()))
            send_rows(responses[static_cast<size_t>(i)], output,
                      batch.batched ? dense.narrow(0, at, batch.rows[static_cast<size_t>(i)]) : dense);
}

static void send_strings(proa_backend_response *response, const Output &output, c10::ArrayRef<c10::IValue> strings)
{
    proa_err err = {};
    void *data;
    size_t bytes = 0;
    int64_t shape[1] = {static_cast<int64_t>(strings.size())};
    for (const c10::IValue &s : strings) bytes += 4 + s.toStringRef().size();
    proa_status status = host->response_output(response, output.name.c_str(), PROA_BACKEND_BYTES, shape, 1,
                                               bytes, &data, &err);
    if (status != PROA_OK) throw Failure(status, err.text);
    char *to = static_cast<char *>(data);
    for (const c10::IValue &s : strings) {
        const std::string &text = s.toStringRef();
        uint32_t length = static_cast<uint32_t>(text.size());
        std::memcpy(to, &length, 4);
        std::copy(text.begin(), text.end(), to + 4);
        to += 4 + length;
    }
}

static void scatter_strings(const Batch &batch, const std::vector<proa_backend_response *> &responses,
                            const Output &output, c10::ArrayRef<c10::IValue> strings)
{
    if (output.type != PROA_BACKEND_BYTES)
        fail(PROA_INVALID, "configuration expects datatype TYPE_%s for output '%s', model provides TYPE_STRING",
             type_name(output.type), output.name.c_str());
    if (batch.batched && static_cast<int64_t>(strings.size()) != batch.total)
        fail(PROA_INVALID, "output '%s' has %zu strings for a batch of %lld", output.name.c_str(),
             strings.size(), static_cast<long long>(batch.total));
    size_t at = 0;
    for (size_t i = 0; i < responses.size(); i++) {
        size_t n = batch.batched ? static_cast<size_t>(batch.rows[i]) : strings.size();
        if (host->request_wants(batch.requests[i], output.name.c_str()))
            send_strings(responses[i], output, strings.slice(at, n));
        at += batch.batched ? n : 0;
    }
}

void scatter(const Batch &batch, const std::vector<proa_backend_response *> &responses, const Output &output,
             const c10::IValue &value)
{
    if (value.isTensor()) scatter_tensor(batch, responses, output, value.toTensor());
    else scatter_strings(batch, responses, output, value.toListRef());
}

} // namespace proa_torch
