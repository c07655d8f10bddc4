/* SPDX-License-Identifier: Apache-2.0
 * nvml.c - a stand-in for NVIDIA's libnvidia-ml.so.1 with two GPUs: one that reports everything, and one that knows its
 * memory only, as a part of a GPU (MIG) does. */
#include <stdio.h>
#include <string.h>

enum { NOT_SUPPORTED = 3 };
typedef struct device {
    const char *uuid;
    int whole;
} device;
static device devices[] = {{"GPU-11111111-2222-3333-4444-555555555555", 1},
                           {"MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", 0}};

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out)
{
    *out = &devices[index];
    return index < 2 ? 0 : 2;
}

int nvmlDeviceGetUUID(const device *d, char *out, unsigned bytes)
{
    return snprintf(out, bytes, "%s", d->uuid) < (int)bytes ? 0 : 7;
}

int nvmlDeviceGetName(const device *d, char *out, unsigned bytes)
{
    (void)d;
    return snprintf(out, bytes, "Test GPU") < (int)bytes ? 0 : 7;
}

int nvmlDeviceGetUtilizationRates(const device *d, unsigned out[2])
{
    out[0] = 37, out[1] = 5;
    return d->whole ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(const device *d, unsigned long long out[3])
{
    out[0] = d->whole ? 80000000000 : 10000000000;
    out[2] = out[0] / 4;
    out[1] = out[0] - out[2];
    return 0;
}

int nvmlDeviceGetPowerUsage(const device *d, unsigned *milliwatts)
{
    *milliwatts = 123456;
    return d->whole ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerManagementLimit(const device *d, unsigned *milliwatts)
{
    *milliwatts = 700000;
    return d->whole ? 0 : NOT_SUPPORTED;
}

/* nvmlDeviceGetTotalEnergyConsumption is missing, as in old drivers. */
