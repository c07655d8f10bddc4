/* SPDX-License-Identifier: Apache-2.0
 * test_metrics.c - the page of metrics: its form (each family once, with its type before its samples), values
 * after requests, labels, what is opted in, the cache's families, and what backends add. */
#include "repo.h"

static void add_metrics(void *state, const char *labels, proa_buf *out)
{
    (void)state;
    proa_buf_printf(out,
                    "# HELP my_things Things\n# TYPE my_things gauge\nmy_things{%s,kind=\"a\"} 1\n"
                    "my_things{%s,kind=\"b\"} 2\n# HELP my_sum Sums\n# TYPE my_sum counter\nmy_sum{%s} 5\n",
                    labels, labels, labels);
}

static const proa_backend more_backend = {.name = "more",
                                          .model_open = tell_open,
                                          .model_close = tell_close,
                                          .instance_open = tell_instance_open,
                                          .instance_close = tell_instance_close,
                                          .execute = tell_execute,
                                          .metrics = add_metrics};
static const proa_backend *const backends[] = {&tell_backend, &more_backend, NULL};

static char folder[PROA_PATH_MAX];
static proa_buf page;

static proa_server *serve(proa_server_options o)
{
    proa_server *s = NULL;
    proa_err err = {0};
    const char *const folders[] = {folder};
    o.repositories = folders;
    o.repositories_count = 1;
    o.backends = backends;
    if (proa_server_new(&s, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    return s;
}

static void read_page(proa_server *s)
{
    proa_buf_clear(&page);
    proa_server_metrics(s, &page);
    assert_false(page.full);
    assert_true(page.len > 0 && page.ptr[page.len - 1] == '\n');
}

/* The value of a sample by all of its text before the value; fails if it is not there, or twice. */
static double value_of(const char *sample)
{
    char line[600];
    snprintf(line, sizeof line, "\n%s ", sample);
    const char *at = strstr(page.ptr, line);
    if (!at) fail_msg("no %s in\n%s", sample, page.ptr);
    assert_null(strstr(at + 1, line));
    return strtod(at + strlen(line), NULL);
}

static bool has(const char *text)
{
    return strstr(page.ptr, text) != NULL;
}

/* ---- the form: a small reader of the text format ---- */

typedef struct family {
    char name[128], type[16];
    bool help;
} family;

static void sample_name(char *out, size_t size, const char *line, const family *f)
{
    static const char *const ends[] = {"_bucket", "_sum", "_count"};
    size_t n = strcspn(line, "{ ");
    snprintf(out, size, "%.*s", (int)n, line);
    bool many = strcmp(f->type, "histogram") == 0 || strcmp(f->type, "summary") == 0;
    for (int i = 0; i < 3 && many; i++) {
        size_t len = strlen(ends[i]);
        if (n > len && strcmp(out + n - len, ends[i]) == 0) out[n - len] = 0;
    }
}

static void check_sample(const char *line, const family *f)
{
    char name[128], *end;
    sample_name(name, sizeof name, line, f);
    assert_string_equal(name, f->name);
    const char *value = strrchr(line, ' ');
    assert_non_null(value);
    (void)strtod(value + 1, &end);
    assert_true(end > value + 1 && *end == 0);
    const char *open = strchr(line, '{');
    if (open) assert_true(value[-1] == '}');
}

static int check_form(void)
{
    static family families[256];
    int count = 0;
    char *text = strdup(page.ptr), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[128], type[16];
        if (sscanf(line, "# HELP %127s", name) == 1) {
            for (int i = 0; i < count; i++) assert_string_not_equal(families[i].name, name);
            families[count++] = (family){.help = true};
            snprintf(families[count - 1].name, 128, "%s", name);
            assert_true(strlen(line) > strlen("# HELP ") + strlen(name) + 1);
        } else if (sscanf(line, "# TYPE %127s %15s", name, type) == 2) {
            assert_true(count > 0);
            assert_string_equal(families[count - 1].name, name);
            assert_string_equal(families[count - 1].type, "");
            snprintf(families[count - 1].type, 16, "%s", type);
        } else {
            assert_true(count > 0 && families[count - 1].type[0]);
            check_sample(line, &families[count - 1]);
        }
    }
    free(text);
    return count;
}

/* ---- tests ---- */

static int open_folder(void **state)
{
    (void)state;
    proa_buf_init(&page, 64 << 20);
    repo_make(folder);
    repo_model(folder, "a",
               "version_policy { all {} } metric_tags { key: \"z\" value: \"q\\\"\\\\\" }"
               " metric_tags { key: \"b\" value: \"1\" } response_cache { enable: true }"
               " instance_group { kind: KIND_CPU count: 1 }");
    repo_version(folder, "a", 1, "11");
    repo_version(folder, "a", 2, "12");
    for (int i = 0; i < 2; i++) {
        char file[64];
        snprintf(file, sizeof file, "more%d/config.pbtxt", i);
        repo_write(folder, file,
                   "backend: \"more\"\nmax_batch_size: 8\ninput { name: \"INPUT\" data_type: TYPE_INT32 "
                   "dims: [ -1 ] }\n"
                   "output { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
                   "model_metrics { metric_control { metric_identifier { family: "
                   "\"nv_inference_request_duration_histogram_us\" } histogram_options { buckets: [ 1, 2.5, "
                   "1e9 ] } } }");
        snprintf(file, sizeof file, "more%d", i);
        repo_version(folder, file, 1, "1");
    }
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    repo_remove(folder);
    proa_buf_release(&page);
    return 0;
}

static void ask(proa_server *s, const char *model, int64_t version, int32_t wait_ms)
{
    call c;
    call_begin(&c, s, model, version, wait_ms);
    call_wait(&c);
    assert_int_equal(c.status, PROA_OK);
}

#define A1 "{_b=\"1\",_z=\"q\\\"\\\\\",model=\"a\",version=\"1\"}"
#define M0 "{model=\"more0\",version=\"1\"}"

static void test_values(void **state)
{
    proa_server *s = serve((proa_server_options){0});
    read_page(s);
    check_form();
    assert_int_equal((int)value_of("nv_inference_request_success" A1), 0);
    for (int i = 0; i < 3; i++) ask(s, "a", 1, 2);
    ask(s, "more0", -1, 0);
    read_page(s);
    assert_true(check_form() > 20);
    assert_int_equal((int)value_of("nv_inference_request_success" A1), 3);
    assert_int_equal((int)value_of("nv_inference_count" A1), 3);
    assert_int_equal((int)value_of("nv_inference_exec_count" A1), 3);
    assert_int_equal((int)value_of("nv_inference_request_failure{_b=\"1\",_z=\"q\\\"\\\\\",model=\"a\","
                                   "reason=\"BACKEND\",version=\"1\"}"),
                     0);
    double whole = value_of("nv_inference_request_duration_us" A1),
           infer = value_of("nv_inference_compute_infer_duration_us" A1);
    assert_true(infer >= 6000 && whole >= infer && whole < 20e6);
    (void)value_of("nv_inference_queue_duration_us" A1);
    (void)value_of("nv_inference_compute_input_duration_us" A1);
    (void)value_of("nv_inference_compute_output_duration_us" A1);
    assert_int_equal((int)value_of("nv_inference_pending_request_count" A1), 0);
    assert_true(value_of("nv_model_load_duration_secs" A1) > 0);
    /* histograms, the model's own bounds too */
    assert_int_equal(
        (int)value_of(
            "nv_inference_request_duration_histogram_us_bucket{_b=\"1\",_z=\"q\\\"\\\\\",model=\"a\","
            "version=\"1\",le=\"1000\"}"),
        0);
    assert_int_equal(
        (int)value_of(
            "nv_inference_request_duration_histogram_us_bucket{_b=\"1\",_z=\"q\\\"\\\\\",model=\"a\","
            "version=\"1\",le=\"+Inf\"}"),
        3);
    assert_int_equal((int)value_of("nv_inference_request_duration_histogram_us_count" A1), 3);
    assert_true(value_of("nv_inference_request_duration_histogram_us_sum" A1) >= 6000);
    assert_int_equal(
        (int)value_of(
            "nv_inference_request_duration_histogram_us_bucket{model=\"more0\",version=\"1\",le=\"2.5\"}"),
        0);
    assert_int_equal((int)value_of("nv_inference_request_duration_histogram_us_bucket{model=\"more0\","
                                   "version=\"1\",le=\"1000000000\"}"),
                     1);
    (void)value_of("nv_inference_queue_duration_histogram_us_count" M0);
    (void)value_of("nv_inference_compute_infer_duration_histogram_us_count" M0);
    /* opt-in families are absent, and so are those without a source */
    assert_false(has("nv_inference_first_response_histogram_ms"));
    assert_false(has("_summary_"));
    assert_false(has("_cache_"));
    /* the machine */
    assert_true(value_of("nv_cpu_utilization") >= 0 && value_of("nv_cpu_utilization") <= 1);
    assert_true(value_of("nv_cpu_memory_total_bytes") > value_of("nv_cpu_memory_used_bytes"));
    assert_true(value_of("nv_cpu_memory_used_bytes") > 0);
    /* two models of one backend: each family once, with both */
    assert_int_equal((int)value_of("my_things{model=\"more0\",version=\"1\",kind=\"b\"}"), 2);
    assert_int_equal((int)value_of("my_things{model=\"more1\",version=\"1\",kind=\"b\"}"), 2);
    assert_int_equal((int)value_of("my_sum{model=\"more1\",version=\"1\"}"), 5);
    repo_stop(s);
    (void)state;
}

static void test_histograms_add_up(void **state)
{
    proa_server *s = serve((proa_server_options){0});
    for (int i = 0; i < 5; i++) ask(s, "a", 2, i);
    read_page(s);
    double before = 0;
    int lines = 0;
    static const char prefix[] = "\nnv_inference_request_duration_histogram_us_bucket{_b=\"1\",_z="
                                 "\"q\\\"\\\\\",model=\"a\",version=\"2\"";
    for (const char *at = page.ptr; (at = strstr(at, prefix)) != NULL; at++, lines++) {
        double value = strtod(strchr(at + 1, ' ') + 1, NULL);
        assert_true(value >= before);
        before = value;
    }
    assert_true(lines > 10);
    assert_int_equal((int)before, 5);
    repo_stop(s);
    (void)state;
}

static void test_options(void **state)
{
    proa_server *s = serve((proa_server_options){.histogram_latencies = true,
                                                 .summary_latencies = true,
                                                 .no_counter_latencies = true,
                                                 .namespacing = true,
                                                 .cache_bytes = 1 << 20});
    char labels[PROA_PATH_MAX + 200], sample[PROA_PATH_MAX + 300];
    for (int i = 0; i < 4; i++) ask(s, "a", 1, 3);
    for (int i = 0; i < 4; i++) ask(s, "more0", -1, 3);
    read_page(s);
    check_form();
    snprintf(labels, sizeof labels, "model=\"more0\",namespace=\"%s\",version=\"1\"", folder);
    snprintf(sample, sizeof sample, "nv_inference_first_response_histogram_ms_bucket{%s,le=\"100\"}", labels);
    assert_int_equal((int)value_of(sample), 4);
    snprintf(sample, sizeof sample, "nv_inference_request_summary_us{%s,quantile=\"0.5\"}", labels);
    assert_true(value_of(sample) >= 2900 && value_of(sample) < 1e6);
    snprintf(sample, sizeof sample, "nv_inference_request_summary_us_count{%s}", labels);
    assert_int_equal((int)value_of(sample), 4);
    snprintf(sample, sizeof sample, "nv_inference_compute_infer_summary_us{%s,quantile=\"0.999\"}", labels);
    assert_true(value_of(sample) >= 2900);
    assert_false(has("nv_inference_request_duration_us"));
    assert_false(has("nv_cache_num_hits_per_model")); /* a counter of the latencies' group */
    /* with a cache: its summaries, and none of the requests */
    assert_true(has("nv_cache_hit_summary_per_model_count{_b=\"1\","));
    assert_false(has("nv_inference_request_summary_us_count{_b=\"1\","));
    assert_false(has("nv_cache_hit_summary_per_model_count{model=\"more0\""));
    assert_int_equal((int)value_of("proa_response_cache_entries"), 1);
    repo_stop(s);
    (void)state;
}

static void test_cache_families(void **state)
{
    proa_server *s = serve((proa_server_options){.cache_bytes = 1 << 20});
    for (int i = 0; i < 4; i++) ask(s, "a", 1, 1);
    read_page(s);
    check_form();
    assert_int_equal((int)value_of("nv_cache_num_hits_per_model" A1), 3);
    assert_int_equal((int)value_of("nv_cache_num_misses_per_model" A1), 1);
    (void)value_of("nv_cache_hit_duration_per_model" A1);
    (void)value_of("nv_cache_miss_duration_per_model" A1);
    assert_int_equal((int)value_of("nv_inference_request_success" A1), 4);
    assert_int_equal((int)value_of("nv_inference_count" A1), 1);
    assert_int_equal((int)value_of("nv_cache_num_entries"), 1);
    assert_int_equal((int)value_of("nv_cache_num_hits"), 3);
    assert_int_equal((int)value_of("nv_cache_num_misses"), 1);
    assert_int_equal((int)value_of("nv_cache_num_lookups"), 4);
    assert_int_equal((int)value_of("nv_cache_num_evictions"), 0);
    assert_true(value_of("nv_cache_util") > 0 && value_of("nv_cache_util") < 0.1);
    (void)value_of("nv_cache_lookup_duration");
    (void)value_of("nv_cache_insertion_duration");
    assert_false(has("nv_cache_num_hits_per_model{model=\"more0\""));
    repo_stop(s);
    (void)state;
}

static void test_no_models(void **state)
{
    char empty[PROA_PATH_MAX];
    proa_server *s = NULL;
    repo_make(empty);
    const char *const folders[] = {empty};
    proa_server_options o = {.repositories = folders, .repositories_count = 1};
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    read_page(s);
    assert_int_equal(check_form(), 5);
    assert_false(has("nv_inference"));
    repo_stop(s);
    repo_remove(empty);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_histograms_add_up),
        cmocka_unit_test(test_options),   cmocka_unit_test(test_cache_families),
        cmocka_unit_test(test_no_models),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
