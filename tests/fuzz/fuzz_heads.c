/* SPDX-License-Identifier: Apache-2.0
 * fuzz_heads.c - Medusa and EAGLE heads for the golden model llama: a letter (m or e), a config.json, a byte 0, and the
 * header of a safetensors file, behind which zeros stand for the tensors. Whatever they say, they are refused with a
 * text, or their sizes are those of the model, every id of a head's own vocabulary is one of the model's, and the
 * weights load. */
#include "base/file.h"
#include "base/limits.h"
#include "fuzz.h"
#include "model/heads/eagle.h"
#include "model/heads/medusa.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 4, TENSORS_BYTES = 400000 };

static char folder[64];

static void remove_files(void)
{
    static const char *const names[] = {"config.json", "model.safetensors", "medusa_lm_head.safetensors"};
    char path[PROA_PATH_MAX];
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_path_join(path, folder, names[i], NULL) == PROA_OK) unlink(path);
}

static void remove_folder(void)
{
    remove_files();
    rmdir(folder);
}

static void make_folder(void)
{
    if (folder[0]) return;
    bool memory = access("/dev/shm", W_OK) == 0; /* in memory, where there is such a folder */
    snprintf(folder, sizeof folder, "%s/proa-fuzz-XXXXXX", memory ? "/dev/shm" : "/tmp");
    PROA_ASSERT(mkdtemp(folder));
    atexit(remove_folder);
}

/* Where the last tensor of a header ends, as far as it says so; at most TENSORS_BYTES. */
static off_t tensors_end(const uint8_t *header, size_t size)
{
    static const char key[] = "data_offsets\":[";
    int64_t end = 0;
    for (size_t i = 0; i + sizeof key < size; i++) {
        if (memcmp(header + i, key, sizeof key - 1) != 0) continue;
        int64_t number = 0;
        for (size_t k = i + sizeof key - 1; k < size && header[k] != ']'; k++)
            number = header[k] < '0' || header[k] > '9' ? 0
                                                        : (number * 10 + header[k] - '0') % (2 * TENSORS_BYTES);
        if (number > end) end = number;
    }
    return (off_t)(end < TENSORS_BYTES ? end : TENSORS_BYTES);
}

/* With `header` the bytes are the header of a safetensors file: its length comes first, zeros follow. */
static void write_file(const char *name, const uint8_t *bytes, size_t size, bool header)
{
    char path[PROA_PATH_MAX];
    uint64_t length = size;
    PROA_ASSERT(proa_path_join(path, folder, name, NULL) == PROA_OK);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    PROA_ASSERT(fd >= 0);
    bool ok = !header || write(fd, &length, sizeof length) == (ssize_t)sizeof length;
    ok = ok && write(fd, bytes, size) == (ssize_t)size;
    ok = ok && (!header || ftruncate(fd, (off_t)(sizeof length + size) + tensors_end(bytes, size)) == 0);
    PROA_ASSERT(ok && close(fd) == 0);
}

static const proa_model_options options = {
    .dtype = "f32", .kv_dtype = "f32", .rows_max = ROWS, .head_rows = 1, .sampled_rows = 1};

static proa_model *open_model(void)
{
    static proa_model *model;
    proa_device *device = NULL;
    proa_err err = {.status = PROA_OK};
    if (model) return model;
    bool ok = proa_device_open(&device, "cpu", &err) == PROA_OK &&
              proa_model_prepare(&model, PROA_SOURCE_DIR "/tests/golden/arch/llama", &options, device,
                                 proa_pool_new(1), &err) == PROA_OK &&
              proa_model_load(model, NULL, NULL, &err) == PROA_OK;
    PROA_ASSERT(ok);
    return model;
}

static void check_eagle(proa_model *m)
{
    proa_eagle *h = NULL;
    proa_err err = {.status = PROA_OK};
    const proa_eagle_options kept = {.model = &options, .kept_max = 2 * ROWS, .own_max = ROWS};
    if (proa_eagle_prepare(&h, folder, m, &kept, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0] != '\0' && !h);
        return;
    }
    const proa_config *c = &h->model->config;
    PROA_ASSERT(c->vocab == m->config.vocab && h->bytes > 0 && c->draft_vocab <= m->config.vocab);
    for (int64_t i = 0; h->ids && i < c->draft_vocab; i++)
        PROA_ASSERT(h->ids[i] >= 0 && h->ids[i] < m->config.vocab);
    if (proa_eagle_load(h, NULL, NULL, &err) != PROA_OK) PROA_ASSERT(err.text[0] != '\0');
    proa_eagle_free(h);
}

static void check_medusa(proa_model *m)
{
    proa_medusa *h = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_medusa_prepare(&h, folder, m, ROWS, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0] != '\0' && !h);
        return;
    }
    PROA_ASSERT(h->heads > 0 && h->layers >= 0 && h->layers <= PROA_MEDUSA_LAYERS_MAX && h->bytes > 0);
    if (proa_medusa_load(h, &err) != PROA_OK) PROA_ASSERT(err.text[0] != '\0');
    proa_medusa_free(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_model *m = open_model();
    if (size == 0 || (data[0] != 'e' && data[0] != 'm')) return 0;
    const uint8_t *config = data + 1, *end = memchr(config, 0, size - 1);
    size_t len = end ? (size_t)(end - config) : size - 1, rest = end ? size - 2 - len : 0;
    bool medusa = data[0] == 'm';
    make_folder();
    write_file("config.json", config, len, false);
    if (end) write_file(medusa ? "medusa_lm_head.safetensors" : "model.safetensors", end + 1, rest, true);
    if (medusa) check_medusa(m);
    else check_eagle(m);
    remove_files();
    return 0;
}
