/* SPDX-License-Identifier: Apache-2.0
 * gpus.c - opens NVML and reads the GPUs. The functions and structs are those of nvml.h, version 2 of the interface. */
#include "serve/stats/gpus.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define LIBNVML "libnvidia-ml.so.1"

/* ---- NVML ---- */

typedef struct nvml_device *nvml_device;
typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent */
} nvml_utilization;
typedef struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
} nvml_memory;

/* Each returns 0 for success. A driver may lack functions of the second list. */
#define NVML_LIST(X)                                                                                         \
    X(Init_v2, (void))                                                                                       \
    X(Shutdown, (void))                                                                                      \
    X(DeviceGetCount_v2, (unsigned *))                                                                       \
    X(DeviceGetHandleByIndex_v2, (unsigned, nvml_device *))                                                  \
    X(DeviceGetUUID, (nvml_device, char *, unsigned))                                                        \
    X(DeviceGetName, (nvml_device, char *, unsigned))
#define NVML_FIGURES_LIST(X)                                                                                 \
    X(DeviceGetUtilizationRates, (nvml_device, nvml_utilization *))                                          \
    X(DeviceGetMemoryInfo, (nvml_device, nvml_memory *))                                                     \
    X(DeviceGetPowerUsage, (nvml_device, unsigned *))                       /* milliwatts */                 \
    X(DeviceGetPowerManagementLimit, (nvml_device, unsigned *))             /* milliwatts */                 \
    X(DeviceGetTotalEnergyConsumption, (nvml_device, unsigned long long *)) /* millijoules */

#define NVML_FIELD(name, parameters) int(*name) parameters;
typedef struct nvml {
    NVML_LIST(NVML_FIELD)
    NVML_FIGURES_LIST(NVML_FIELD)
    void *library;
} nvml;

static void *find_function(const nvml *n, const char *name)
{
    return dlsym(n->library, name);
}

/* False: it is not there. */
static bool open_nvml(nvml *n)
{
    bool all = true;
    *n = (nvml){.library = dlopen(LIBNVML, RTLD_NOW | RTLD_LOCAL)};
    if (!n->library) return false;
#define NVML_LOAD(name, parameters)                                                                          \
    {                                                                                                        \
        void *symbol = find_function(n, "nvml" #name);                                                       \
        memcpy(&n->name, &symbol, sizeof symbol);                                                            \
    }
#define NVML_NEED(name, parameters) NVML_LOAD(name, parameters) all = all && n->name;
    NVML_LIST(NVML_NEED)
    NVML_FIGURES_LIST(NVML_LOAD)
    if (all && n->Init_v2() == 0) return true;
    dlclose(n->library);
    return false;
}

/* ---- one GPU ---- */

static void read_gpu(const nvml *n, nvml_device device, proa_gpu_stats *out)
{
    nvml_utilization busy;
    nvml_memory memory;
    unsigned mw;
    unsigned long long mj;
    out->utilization = out->memory_total = out->memory_used = out->power_usage = out->power_limit =
        out->energy = -1;
    if (n->DeviceGetUtilizationRates && n->DeviceGetUtilizationRates(device, &busy) == 0)
        out->utilization = busy.gpu / 100.0;
    if (n->DeviceGetMemoryInfo && n->DeviceGetMemoryInfo(device, &memory) == 0) {
        out->memory_total = (double)memory.total;
        out->memory_used = (double)memory.used;
    }
    if (n->DeviceGetPowerUsage && n->DeviceGetPowerUsage(device, &mw) == 0) out->power_usage = mw / 1e3;
    if (n->DeviceGetPowerManagementLimit && n->DeviceGetPowerManagementLimit(device, &mw) == 0)
        out->power_limit = mw / 1e3;
    if (n->DeviceGetTotalEnergyConsumption && n->DeviceGetTotalEnergyConsumption(device, &mj) == 0)
        out->energy = (double)mj / 1e3;
}

/* ---- the thread ---- */

struct proa_gpus {
    nvml nvml;
    int64_t interval_ms;
    nvml_device devices[PROA_GPUS_MAX];
    int count;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ending;                         /* [lock] */
    proa_gpu_stats stats[PROA_GPUS_MAX]; /* [lock] names are constant */
};

static void read_all(proa_gpus *g)
{
    for (int i = 0; i < g->count; i++) {
        proa_gpu_stats now = g->stats[i];
        read_gpu(&g->nvml, g->devices[i], &now);
        pthread_mutex_lock(&g->lock);
        g->stats[i] = now;
        pthread_mutex_unlock(&g->lock);
    }
}

static void *read_for_ever(void *arg)
{
    proa_gpus *g = arg;
    for (bool ending = false; !ending;) {
        read_all(g);
        pthread_mutex_lock(&g->lock);
        if (!g->ending) proa_cond_wait_ms(&g->changed, &g->lock, g->interval_ms);
        ending = g->ending;
        pthread_mutex_unlock(&g->lock);
    }
    return NULL;
}

static void find_gpus(proa_gpus *g)
{
    unsigned count = 0;
    if (g->nvml.DeviceGetCount_v2(&count) != 0) return;
    for (unsigned i = 0; i < count && g->count < PROA_GPUS_MAX; i++) {
        proa_gpu_stats *s = &g->stats[g->count];
        nvml_device device;
        if (g->nvml.DeviceGetHandleByIndex_v2(i, &device) != 0) continue;
        if (g->nvml.DeviceGetUUID(device, s->uuid, sizeof s->uuid) != 0) continue;
        if (g->nvml.DeviceGetName(device, s->name, sizeof s->name) != 0) s->name[0] = 0;
        s->uuid[sizeof s->uuid - 1] = s->name[sizeof s->name - 1] = 0;
        g->devices[g->count++] = device;
    }
}

static void free_gpus(proa_gpus *g)
{
    g->nvml.Shutdown();
    dlclose(g->nvml.library);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

proa_gpus *proa_gpus_start(int64_t interval_ms)
{
    nvml opened;
    if (!open_nvml(&opened)) return NULL;
    proa_gpus *g = proa_calloc(1, sizeof *g);
    g->nvml = opened;
    g->interval_ms = interval_ms;
    pthread_mutex_init(&g->lock, NULL);
    proa_cond_init(&g->changed);
    find_gpus(g);
    if (g->count && pthread_create(&g->thread, NULL, read_for_ever, g) == 0) {
        pthread_setname_np(g->thread, "gpus");
        return g;
    }
    free_gpus(g);
    return NULL;
}

int proa_gpus_read(proa_gpus *g, proa_gpu_stats *list, int cap)
{
    if (!g) return 0;
    int count = g->count < cap ? g->count : cap;
    pthread_mutex_lock(&g->lock);
    memcpy(list, g->stats, (size_t)count * sizeof *list);
    pthread_mutex_unlock(&g->lock);
    return count;
}

void proa_gpus_stop(proa_gpus *g)
{
    if (!g) return;
    pthread_mutex_lock(&g->lock);
    g->ending = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    free_gpus(g);
}
