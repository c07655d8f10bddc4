/* SPDX-License-Identifier: Apache-2.0
 * plugin.cpp - libproa_torch.so: the backend `pytorch` with the interface of proa/backend.h. */
#include "device.h"
#include "program.h"
#include "tensors.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <map>
#include <mutex>

#include <unistd.h>

namespace proa_torch
{

struct Model {
    proa_backend_model *handle;
    Settings settings;
    std::string path; /* of the file */
    bool package;
    std::vector<Output> outputs;
    std::map<std::string, std::weak_ptr<Program>> shared; /* ENABLE_WEIGHT_SHARING: by device */
};

struct Instance {
    Model *model;
    c10::Device inputs_on;
    std::shared_ptr<Program> program;
    std::vector<Input> inputs;
};

/* ---- exceptions end here ---- */

/* Runs `work`; what it throws becomes the status and text of *err, with `what` before texts of torch. */
template <typename Work> static proa_status guarded(proa_err *err, const std::string &what, Work work)
{
    try {
        work();
        return PROA_OK;
    } catch (const Failure &f) {
        return host->fail(err, f.status, f.what());
    } catch (const std::exception &e) {
        host->log(PROA_BACKEND_LOG_VERBOSE, __FILE__, __LINE__, e.what());
        return host->fail(err, PROA_INTERNAL, (what + reason_of(e.what())).c_str());
    } catch (...) {
        return host->fail(err, PROA_INTERNAL, (what + "unknown exception").c_str());
    }
}

/* ---- a model ---- */

static std::string file_of(const proa_backend_model *model, bool package)
{
    std::string name = host->model_file(model);
    if (name.empty()) name = package ? "model.pt2" : "model.pt";
    std::string path = std::string(host->model_version_path(model)) + "/" + name;
    if (access(path.c_str(), R_OK) != 0)
        fail(PROA_NOT_FOUND, "unable to find '%s' for model instance '%s'", path.c_str(),
             host->model_name(model));
    return path;
}

/* By the platform; without one by the name of the file. */
static bool is_package(const proa_backend_model *model)
{
    std::string platform = host->model_platform(model), file = host->model_file(model);
    bool named = file.size() > 4 && file.compare(file.size() - 4, 4, ".pt2") == 0;
    return platform == "torch_aoti" || (platform.empty() && named);
}

/* Torch's threads are of the whole program: the first model that names a number sets it. */
static void set_threads(const Settings &s)
{
    static std::once_flag intra, inter;
    if (s.intra_op_threads) std::call_once(intra, [&] { at::set_num_threads(s.intra_op_threads); });
    if (s.inter_op_threads) std::call_once(inter, [&] { at::set_num_interop_threads(s.inter_op_threads); });
}

static proa_status model_open(void **state, proa_backend_model *handle, proa_err *err)
{
    return guarded(err, std::string("failed to load model '") + host->model_name(handle) + "': ", [&] {
        auto model = std::make_unique<Model>();
        model->handle = handle;
        model->settings = read_settings(handle);
        model->package = is_package(handle);
        model->path = file_of(handle, model->package);
        model->outputs = declared_outputs(handle);
        load_cuda();
        set_threads(model->settings);
        host->model_takes_device_inputs(handle);
        *state = model.release();
    });
}

static void model_close(void *state)
{
    delete static_cast<Model *>(state);
}

/* ---- an instance ---- */

/* Where parameters go; nullopt: where the file says. */
static std::optional<c10::Device> device_of(const proa_backend_instance *instance)
{
    switch (host->instance_kind(instance)) {
    case PROA_BACKEND_KIND_MODEL: return std::nullopt;
    case PROA_BACKEND_KIND_GPU: {
        c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(host->instance_device(instance)));
        check_device(device);
        return device;
    }
    default: return c10::Device(c10::kCPU);
    }
}

static std::shared_ptr<Program> load(Model *model, std::optional<c10::Device> device)
{
    std::string key = device ? device->str() : "model";
    if (model->settings.weight_sharing)
        if (auto program = model->shared[key].lock()) return program;
    c10::InferenceMode mode(model->settings.inference_mode);
    std::shared_ptr<Program> program = model->package ? load_package(model->path, device)
                                                      : load_script(model->path, device, model->settings);
    model->shared[key] = program;
    return program;
}

static proa_status instance_open(void **state, void *model_state, const proa_backend_instance *handle,
                                 proa_err *err)
{
    auto *model = static_cast<Model *>(model_state);
    return guarded(err, std::string("failed to load model '") + host->model_name(model->handle) + "': ", [&] {
        std::optional<c10::Device> device = device_of(handle);
        auto instance = std::make_unique<Instance>(
            Instance{model, device.value_or(c10::Device(c10::kCPU)), load(model, device), {}});
        instance->inputs = bind_inputs(model->handle, instance->program->arguments());
        *state = instance.release();
    });
}

static void instance_close(void *state)
{
    delete static_cast<Instance *>(state);
}

/* ---- execution ---- */

static void compute(const Instance &instance, const Batch &batch,
                    const std::vector<proa_backend_response *> &responses)
{
    const Model &model = *instance.model;
    c10::InferenceMode mode(model.settings.inference_mode);
    c10::NoGradGuard no_grad;
    at::globalContext().setUserEnabledCuDNN(model.settings.cudnn);
    Stream stream(instance.inputs_on);
    std::vector<Given> given = gather(batch, instance.inputs, instance.inputs_on,
                                      instance.program->writes_inputs());
    host->compute_begins(batch.requests, batch.count);
    Results results = instance.program->run(given);
    stream.wait();
    host->compute_ends(batch.requests, batch.count);
    std::vector<size_t> found = find_results(model.outputs, results.paths);
    for (size_t i = 0; i < found.size(); i++)
        scatter(batch, responses, model.outputs[i], results.values[found[i]]);
    stream.wait(); /* outputs that were copied */
}

static void execute_batch(const Instance &instance, proa_backend_request *const *requests, int count)
{
    proa_err err = {};
    std::vector<proa_backend_response *> responses;
    for (int i = 0; i < count; i++) responses.push_back(host->response_new(requests[i]));
    bool batched = host->model_max_batch(instance.model->handle) > 0;
    proa_status status = guarded(&err, "PyTorch execute failure: ", [&] {
        compute(instance, make_batch(requests, count, batched), responses);
    });
    for (int i = 0; i < count; i++) {
        if (status != PROA_OK) host->response_error(responses[static_cast<size_t>(i)], status, err.text);
        host->response_send(requests[i], responses[static_cast<size_t>(i)], true);
    }
}

static void execute(void *state, proa_backend_request *const *requests, int count)
{
    const auto &instance = *static_cast<Instance *>(state);
    bool batched = host->model_max_batch(instance.model->handle) > 0;
    if (batched) execute_batch(instance, requests, count);
    else
        for (int i = 0; i < count; i++) execute_batch(instance, requests + i, 1);
    if (instance.model->settings.cache_cleaning && !instance.inputs_on.is_cpu()) Stream::clean_cache();
}

/* ---- the entry point ---- */

static const proa_backend_table table = {
    sizeof table,  PROA_BACKEND_VERSION, PROA_BACKEND_GPU, model_open, model_close,
    instance_open, instance_close,       execute,          nullptr,
};

} // namespace proa_torch

extern "C" PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *given, proa_err *err)
{
    using namespace proa_torch;
    if (given->version != PROA_BACKEND_VERSION) return nullptr;
    size_t needed = offsetof(proa_backend_host, count_device_copy) + sizeof given->count_device_copy;
    if (given->bytes < needed) {
        given->fail(err, PROA_UNAVAILABLE, "this plug-in needs a later version of Proa");
        return nullptr;
    }
    host = given;
    return &table;
}
