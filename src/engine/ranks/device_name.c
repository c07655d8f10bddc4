/* SPDX-License-Identifier: Apache-2.0
 * device_name.c - which device each rank has. */
#include "engine/ranks/device_name.h"

#include "comm/mpi/mpi.h"
#include "kernels/connect.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *proa_rank_device_name(char out[32], const char *device, int32_t rank)
{
    const char *colon = device ? strchr(device, ':') : NULL;
    if (!device || strncmp(device, "cuda", 4) != 0 || rank == 0) return device;
    snprintf(out, 32, "cuda:%ld", (colon ? strtol(colon + 1, NULL, 10) : 0) + rank);
    return out;
}

const char *proa_rank_local_device(char out[32], const char *device)
{
    const proa_mpi *mpi = proa_mpi_world();
    if (!device || strncmp(device, "cuda", 4) != 0 || !mpi) return device;
    const char *colon = strchr(device, ':');
    long index = (colon ? strtol(colon + 1, NULL, 10) : 0) + mpi->local;
    int32_t visible = proa_device_visible();
    snprintf(out, 32, "cuda:%ld", visible > 0 && mpi->local > 0 ? index % visible : index);
    return out;
}
