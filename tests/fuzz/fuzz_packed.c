/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as the model.proa of a small Llama (corpus/packed is made by tools/fuzz_packed_seeds.py): it is refused
 * with a text, or it is loaded, and every weight is inside the block of the file. */
#include "fuzz.h"

#include "base/alloc.h"
#include "model/model.h"
#include "weights/packed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The configuration of tools/fuzz_packed_seeds.py. */
static const char config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":16,\"hidden_size\":8,"
    "\"intermediate_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";

static void put_file(const char *dir, const char *name, const void *bytes, size_t len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    PROA_ASSERT(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
}

/* One folder for the process, in memory if there is such a disk. */
static const char *folder(void)
{
    static char dir[64];
    if (dir[0]) return dir;
    snprintf(dir, sizeof dir, "/dev/shm/proa-fuzz-XXXXXX");
    if (!mkdtemp(dir)) {
        snprintf(dir, sizeof dir, "/tmp/proa-fuzz-XXXXXX");
        PROA_ASSERT(mkdtemp(dir));
    }
    put_file(dir, "config.json", config, strlen(config));
    return dir;
}

static void check_weights(const proa_model *m)
{
    const proa_packed_file *p = m->packed;
    PROA_ASSERT(m->weight_memory == p->block && p->block_bytes == m->plan.weight_bytes);
    for (proa_weight_walk walk = {.param = NULL}; proa_model_next_weight(m, &walk);) {
        const proa_param *param = walk.param;
        const char *at = param->role == PROA_ROLE_TABLE ? param->table.data
                         : proa_param_is_matrix(param)  ? param->matrix.data
                                                        : (const char *)param->values;
        PROA_ASSERT(at >= p->block && at + param->bytes <= p->block + p->block_bytes);
        PROA_ASSERT(!proa_param_is_matrix(param) || param->matrix.bytes <= param->bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static proa_device *device;
    static proa_pool *pool;
    const proa_model_options options = {.rows_max = 4, .head_rows = 1, .sampled_rows = 1};
    proa_model *m;
    proa_err err = {.status = PROA_OK};
    if (!device) PROA_ASSERT(proa_device_open(&device, "cpu", NULL) == PROA_OK);
    if (!pool) pool = proa_pool_new(1);
    put_file(folder(), PROA_PACKED_NAME, data, size);
    proa_status status = proa_model_prepare(&m, folder(), &options, device, pool, &err);
    PROA_ASSERT((status == PROA_OK) == (m != NULL) && status == err.status);
    PROA_ASSERT(m || err.text[0] != '\0');
    if (m && m->packed && proa_model_load(m, NULL, NULL, &err) == PROA_OK) check_weights(m);
    proa_model_free(m);
    return 0;
}
