/* SPDX-License-Identifier: Apache-2.0
 * device_name.h - names of devices, before one is opened. */
#ifndef PROA_KERNELS_DEVICE_NAME_H
#define PROA_KERNELS_DEVICE_NAME_H

#include "base/status.h"

/* "cpu" or NULL: *gpu is -1; "cuda" is 0, "cuda:N" N. Whether that GPU is there is not looked at. INVALID: no device
 * has such a name. */
PROA_MUST_CHECK proa_status proa_device_parse(int *gpu, const char *name, proa_err *err);

#endif
