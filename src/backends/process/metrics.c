/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - what /metrics tells about worker processes. */
#include "backends/process/process.h"

#include "base/limits.h"

static void put_counter(proa_buf *out, const char *prefix, const char *labels, const char *name,
                        const char *help, unsigned long long value)
{
    proa_buf_printf(out, "# HELP %s_%s %s\n# TYPE %s_%s counter\n%s_%s{%s} %llu\n", prefix, name, help,
                    prefix, name, prefix, name, labels, value);
}

/* A sample for each process; a family without samples is left out. */
static void put_processes(proa_worker_model *m, const char *prefix, const char *labels, proa_buf *out)
{
    proa_buf seconds;
    int running = 0;
    proa_buf_init(&seconds, PROA_METRICS_BYTES_MAX);
    proa_buf_printf(
        out,
        "# HELP %s_process_memory_bytes Memory of the process that is in RAM, shared memory included\n"
        "# TYPE %s_process_memory_bytes gauge\n",
        prefix, prefix);
    pthread_mutex_lock(&m->lock);
    for (proa_worker *w = m->workers; w; w = proa_worker_next(w)) {
        proa_process_use use;
        const char *name;
        if (!proa_worker_read_use(w, &name, &use)) continue;
        running++;
        proa_buf_printf(out, "%s_process_memory_bytes{%s,instance=\"%s\"} %lld\n", prefix, labels, name,
                        (long long)use.memory_bytes);
        proa_buf_printf(&seconds, "%s_process_cpu_seconds_total{%s,instance=\"%s\"} %.2f\n", prefix, labels,
                        name, use.cpu_s);
    }
    pthread_mutex_unlock(&m->lock);
    proa_buf_printf(
        out,
        "# HELP %s_process_cpu_seconds_total Processor time of the process, since it was started\n"
        "# TYPE %s_process_cpu_seconds_total counter\n",
        prefix, prefix);
    proa_buf_str(out, proa_buf_view(&seconds));
    proa_buf_release(&seconds);
    proa_buf_printf(out, "# HELP %s_processes Processes that run\n# TYPE %s_processes gauge\n%s_processes{%s} %d\n",
                    prefix, prefix, prefix, labels, running);
}

void proa_worker_metrics(proa_worker_model *m, const char *prefix, const char *labels, proa_buf *out)
{
    put_counter(out, prefix, labels, "input_bytes_total",
                "Bytes of inputs that were copied into shared memory, once each", atomic_load(&m->bytes_in));
    put_counter(
        out, prefix, labels, "output_bytes_total",
        "Bytes of outputs in the process's shared memory, from where they are answered without a copy",
        atomic_load(&m->bytes_out));
    put_counter(out, prefix, labels, "passed_bytes_total",
                "Bytes of outputs that are inputs, passed on without a copy", atomic_load(&m->bytes_passed));
    put_counter(out, prefix, labels, "process_starts_total", "Processes that were started",
                atomic_load(&m->starts));
    put_processes(m, prefix, labels, out);
}
