/* SPDX-License-Identifier: Apache-2.0
 * device.cpp - streams and memory of GPUs. */
#include "device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#include <c10/core/CachingDeviceAllocator.h>
#define PROA_TORCH_CLEANS_CACHE 1
#endif

#include <array>
#include <dlfcn.h>
#include <mutex>

namespace proa_torch
{

/* More GPUs than a host has. */
static const int devices_max = 64;

void load_cuda()
{
    static std::once_flag once;
    std::call_once(once, [] {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!driver) return;
        if (!dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL))
            host->log(PROA_BACKEND_LOG_INFO, __FILE__, __LINE__, "this torch has no CUDA: models run on the CPU");
    });
}

void check_device(c10::Device device)
{
    if (device.is_cpu()) return;
    if (!at::hasCUDA()) fail(PROA_UNAVAILABLE, "KIND_GPU: no CUDA driver, or a torch without CUDA");
    int count = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
    if (device.index() >= count || device.index() >= devices_max)
        fail(PROA_UNAVAILABLE, "KIND_GPU: GPU %d does not exist, torch sees %d", device.index(), count);
}

/* ---- memory ---- */

static proa_status read_memory(const proa_backend_memory *memory, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    try {
        auto n = static_cast<int64_t>(bytes);
        c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(memory->device));
        at::Tensor source = at::from_blob(const_cast<void *>(from), {n},
                                          at::TensorOptions(at::kByte).device(device));
        at::from_blob(to, {n}, at::TensorOptions(at::kByte)).copy_(source);
        return PROA_OK;
    } catch (const std::exception &e) {
        return host->fail(err, PROA_INTERNAL, reason_of(e.what()).c_str());
    }
}

const proa_backend_memory *device_memory(int device)
{
    static std::array<proa_backend_memory, devices_max> memories;
    static std::array<std::string, devices_max> names;
    static std::once_flag once;
    std::call_once(once, [] {
        for (int i = 0; i < devices_max; i++) {
            names[static_cast<size_t>(i)] = "cuda:" + std::to_string(i);
            memories[static_cast<size_t>(i)] = {sizeof(proa_backend_memory),
                                                names[static_cast<size_t>(i)].c_str(), i, read_memory};
        }
    });
    return &memories.at(static_cast<size_t>(device));
}

/* ---- streams ---- */

struct Stream::State {
    explicit State(c10::Stream stream) : stream(stream), guard(stream)
    {
    }
    c10::Stream stream;
    c10::StreamGuard guard;
};

Stream::Stream(c10::Device device)
{
    if (device.is_cpu()) return;
    c10::impl::VirtualGuardImpl cuda(device.type());
    state = std::make_unique<State>(cuda.getStreamFromGlobalPool(device));
}

Stream::~Stream() = default;

void Stream::wait()
{
    if (state) state->stream.synchronize();
}

void Stream::clean_cache()
{
#ifdef PROA_TORCH_CLEANS_CACHE
    if (at::hasCUDA()) c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
#endif
}

} // namespace proa_torch
