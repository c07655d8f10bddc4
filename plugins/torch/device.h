/* SPDX-License-Identifier: Apache-2.0
 * device.h - CUDA, through torch's own interface of devices: the plug-in is compiled without CUDA's headers, and one
 * library serves a torch with CUDA and one without.
 * Threads: a Stream belongs to the thread that runs with it. */
#ifndef PROA_PLUGINS_TORCH_DEVICE_H
#define PROA_PLUGINS_TORCH_DEVICE_H

#include "common.h"

#include <c10/core/Device.h>

#include <memory>

namespace proa_torch
{

/* Loads the part of torch that knows CUDA where this host has a driver. Before any other call of torch: that remembers
 * whether there is CUDA. */
void load_cuda();

/* A Failure says why this torch cannot use the device. */
void check_device(c10::Device device);

/* Memory of a GPU as the host sees it; for the whole run of the program. */
const proa_backend_memory *device_memory(int device);

/* While it lives, this thread's work on the device goes to a stream of its own; nothing on the CPU. */
class Stream
{
  public:
    explicit Stream(c10::Device device);
    ~Stream();
    void wait();               /* until all work has ended */
    static void clean_cache(); /* gives unused memory of the caching allocator back to CUDA */

  private:
    struct State;
    std::unique_ptr<State> state;
};

} // namespace proa_torch

#endif
