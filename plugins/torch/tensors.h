/* SPDX-License-Identifier: Apache-2.0
 * tensors.h - requests as torch's tensors, and results as responses. A batch is several requests whose first dimensions
 * are put together.
 * Copies:  one request's input is used in its own memory, unless the program writes to it or it is not aligned; those
 *          of several are copied into one tensor. A result is sent from torch's memory, unless something else holds
 *          it. */
#ifndef PROA_PLUGINS_TORCH_TENSORS_H
#define PROA_PLUGINS_TORCH_TENSORS_H

#include "program.h"

namespace proa_torch
{

struct Batch {
    proa_backend_request *const *requests;
    int count;
    bool batched;              /* the first dimension is the batch's */
    std::vector<int64_t> rows; /* of each request; 1 without batch dimension */
    int64_t total;
};
Batch make_batch(proa_backend_request *const *requests, int count, bool batched);

/* The values of the inputs that the requests bring, on `device`. They may use the requests' memory. copy: never. */
std::vector<Given> gather(const Batch &batch, const std::vector<Input> &inputs, c10::Device device, bool copy);

/* Adds an output to each response; a Failure names the output that does not fit the configuration. */
void scatter(const Batch &batch, const std::vector<proa_backend_response *> &responses, const Output &output,
             const c10::IValue &value);

} // namespace proa_torch

#endif
