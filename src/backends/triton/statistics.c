/* SPDX-License-Identifier: Apache-2.0
 * statistics.c - what backends of Triton report about their work. Requests, batches and responses are counted by the
 * scheduler, as for any backend; what only the backend knows are the times at which a request's inputs were ready and
 * its computation ended. */
#include "backends/triton/abi.h"

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance *instance,
                                                                TRITONBACKEND_Request *request, bool success,
                                                                uint64_t exec_start_ns, uint64_t compute_start_ns,
                                                                uint64_t compute_end_ns, uint64_t exec_end_ns)
{
    (void)instance;
    (void)success; /* its response says it */
    proa_infer_times *times = &request->infer->times;
    bool ordered = exec_start_ns <= compute_start_ns && compute_start_ns <= compute_end_ns &&
                   compute_end_ns <= exec_end_ns && compute_start_ns >= (uint64_t)times->compute_start;
    if (ordered && atomic_load(&request->last)) {     /* not delivered yet: nobody else uses the times */
        times->input_end = (int64_t)compute_start_ns; /* of the monotonic clock, as ours */
        times->output_start = (int64_t)compute_end_ns;
    }
    proa_triton_flush(request);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance *instance,
                                                                     uint64_t batch_size, uint64_t exec_start_ns,
                                                                     uint64_t compute_start_ns,
                                                                     uint64_t compute_end_ns,
                                                                     uint64_t exec_end_ns)
{
    (void)instance, (void)batch_size, (void)exec_start_ns;
    (void)compute_start_ns, (void)compute_end_ns, (void)exec_end_ns;
    return NULL;
}

/* Responses are timed when they are sent: an object has nothing to keep. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsNew(void **statistics)
{
    static char nothing;
    *statistics = &nothing;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsDelete(void *statistics)
{
    (void)statistics;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    void *statistics, TRITONBACKEND_ModelInstance *instance)
{
    (void)statistics, (void)instance;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    void *statistics, TRITONBACKEND_ResponseFactory *factory)
{
    (void)statistics, (void)factory;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(void *statistics,
                                                                                  uint64_t time_ns)
{
    (void)statistics, (void)time_ns;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(void *statistics,
                                                                                       uint64_t time_ns)
{
    (void)statistics, (void)time_ns;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(void *statistics, uint64_t time_ns)
{
    (void)statistics, (void)time_ns;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetError(void *statistics,
                                                                          TRITONSERVER_Error *error)
{
    (void)statistics, (void)error;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportResponseStatistics(void *statistics)
{
    (void)statistics;
    return NULL;
}
