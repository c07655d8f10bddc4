/* SPDX-License-Identifier: Apache-2.0
 * prefix_levels.c - opens the levels of the prefix cache, and says which engines may share pages in a folder. */
#include "engine/prefix_levels.h"

#include "base/alloc.h"
#include "engine/engine.h"
#include <stdlib.h>
#include <string.h>

/* Whatever decides about keys and values but the tokens: program, checkpoint, formats, kernels. Two engines with equal
 * text make equal pages; on the CPU to the bit. */
static void describe_engine(const proa_engine *e, proa_buf *out)
{
    const proa_model *m = e->model;
    proa_buf config;
    proa_buf_printf(out, "proa %s; %s; %s; %s; matrices %s%s%s of %s; keys and values %s; parameters %lld; ",
                    proa_version(), m->arch->name, e->device->name, m->ctx.ops->name,
                    proa_wfmt_name(m->formats.main), m->formats.given ? " by option" : "",
                    m->formats.rounds ? " rounded" : "", proa_dtype_name(m->formats.checkpoint),
                    proa_dtype_name(m->formats.kv), (long long)m->plan.parameters);
    if (m->weights)
        proa_buf_printf(out, "files %llx; ", (unsigned long long)proa_weights_fingerprint(m->weights));
    proa_buf_init(&config, (size_t)PROA_CONFIG_BYTES_MAX);
    if (proa_files_read(&config, proa_model_files(m), "config.json", PROA_CONFIG_BYTES_MAX, NULL) == PROA_OK)
        proa_buf_str(out, proa_buf_view(&config));
    proa_buf_release(&config);
}

static proa_page_format format_of(const proa_engine *e)
{
    const proa_kv_pages *p = &e->pages;
    proa_page_format f = {.dtype = p->dtype,
                          .layers = p->layers,
                          .kv_heads = p->kv_heads,
                          .head_dim = p->head_dim,
                          .image_bytes = proa_kv_image_bytes(p)};
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_CONFIG_BYTES_MAX + 4096);
    describe_engine(e, &text);
    proa_page_key hash = proa_page_key_of(text.ptr, text.len);
    memcpy(f.fingerprint, hash.bytes, sizeof f.fingerprint);
    proa_buf_release(&text);
    return f;
}

proa_status proa_prefix_levels_open(proa_engine *e, const proa_engine_options *o, proa_err *err)
{
    proa_page_folder *folder = NULL;
    int64_t images = proa_sizes_host_pages(&e->sizes, e->model);
    if (!e->sizes.prefix_cache) return PROA_OK;
    if (e->sizes.folder_bytes) {
        proa_page_format format = format_of(e);
        PROA_TRY(proa_page_folder_open(&folder, o->prefix_dir, &format, e->sizes.folder_bytes, err));
    }
    PROA_TRY(proa_host_cache_init(&e->host_cache, &e->pages, images, folder, err));
    proa_prefix_tree_init(&e->prefixes, &e->pages, images ? &e->host_cache : NULL);
    proa_state_cache_init(&e->kept_states, &e->states, e->pages.count);
    e->prefixes.states = &e->kept_states;
    return PROA_OK;
}
