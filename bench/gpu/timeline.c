/* SPDX-License-Identifier: Apache-2.0
 * timeline.c - begin and end of every kernel of a program, those of recorded passes too: a library that CUDA loads into it
 * (CUDA_INJECTION64_PATH) and that CUPTI calls. A line for each, when the program ends: begin and end in ns, grid, threads, bytes of
 * shared memory, name. timeline.py builds it, runs a command with it and sums up. */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records)
{
    *size = (size_t)8 << 20, *records = 0;
    *buffer = aligned_alloc(8, *size);
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        const CUpti_ActivityKernel9 *k = (const CUpti_ActivityKernel9 *)record;
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        fprintf(out, "%llu\t%llu\t%d,%d,%d\t%d\t%d\t%s\n", (unsigned long long)k->start,
                (unsigned long long)k->end, k->gridX, k->gridY, k->gridZ, k->blockX * k->blockY * k->blockZ,
                k->dynamicSharedMemory + k->staticSharedMemory, k->name);
    }
    free(buffer);
}

static void finish(void)
{
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    fclose(out);
}

int InitializeInjection(void)
{
    const char *path = getenv("PROA_TIMELINE");
    out = path ? fopen(path, "we") : NULL;
    if (!out) return 0;
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    CUptiResult result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (result != CUPTI_SUCCESS) fprintf(stderr, "timeline: CUPTI says %d\n", (int)result);
    atexit(finish);
    return 1;
}
