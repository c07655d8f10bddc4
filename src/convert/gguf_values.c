/* SPDX-License-Identifier: Apache-2.0
 * gguf_values.c - members of a GGUF file's metadata as bytes: string key, u32 type, the value. */
#include "convert/gguf_values.h"

#include "tensor/dtype.h"

void proa_gguf_put_u32(proa_buf *out, uint32_t v)
{
    for (int i = 0; i < 4; i++) proa_buf_char(out, (char)(v >> 8 * i));
}

void proa_gguf_put_u64(proa_buf *out, uint64_t v)
{
    for (int i = 0; i < 8; i++) proa_buf_char(out, (char)(v >> 8 * i));
}

void proa_gguf_put_text(proa_buf *out, proa_str s)
{
    proa_gguf_put_u64(out, s.len);
    proa_buf_str(out, s);
}

static void begin_value(proa_gguf_values *v, const char *key, proa_gguf_type type)
{
    proa_gguf_put_text(&v->bytes, proa_str_c(key));
    proa_gguf_put_u32(&v->bytes, (uint32_t)type);
    v->count++;
}

void proa_gguf_value_u32(proa_gguf_values *v, const char *key, int64_t value)
{
    begin_value(v, key, PROA_GGUF_U32);
    proa_gguf_put_u32(&v->bytes, (uint32_t)value);
}

void proa_gguf_value_f32(proa_gguf_values *v, const char *key, double value)
{
    begin_value(v, key, PROA_GGUF_F32);
    proa_gguf_put_u32(&v->bytes, proa_f32_bits((float)value));
}

void proa_gguf_value_bool(proa_gguf_values *v, const char *key, bool value)
{
    begin_value(v, key, PROA_GGUF_BOOL);
    proa_buf_char(&v->bytes, (char)value);
}

void proa_gguf_value_str(proa_gguf_values *v, const char *key, proa_str value)
{
    begin_value(v, key, PROA_GGUF_STRING);
    proa_gguf_put_text(&v->bytes, value);
}

void proa_gguf_value_array(proa_gguf_values *v, const char *key, proa_gguf_type element, int64_t count)
{
    begin_value(v, key, PROA_GGUF_ARRAY);
    proa_gguf_put_u32(&v->bytes, (uint32_t)element);
    proa_gguf_put_u64(&v->bytes, (uint64_t)count);
}
