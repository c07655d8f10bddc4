/* SPDX-License-Identifier: Apache-2.0
 * open.c - a model's file, mapped, to the reader of its format. */
#include "forest/readers.h"

#include <string.h>

#include "base/file.h"
#include "base/limits.h"

/* Both notations of XGBoost begin with a brace: in JSON white space or a quote follows, in UBJSON the type
 * of a length. */
static proa_forest_format detect_braced(proa_str s)
{
    if (s.len < 2) return PROA_FOREST_AUTO;
    return strchr("N$#iUIlL", s.ptr[1]) && s.ptr[1] ? PROA_FOREST_XGBOOST_UBJ : PROA_FOREST_XGBOOST_JSON;
}

static proa_forest_format detect_format(proa_str s)
{
    if (proa_str_starts(s, proa_str_c("tree\n")) || proa_str_starts(s, proa_str_c("tree\r")))
        return PROA_FOREST_LIGHTGBM;
    if (s.len >= 4 && (s.ptr[0] == 3 || s.ptr[0] == 4) && memcmp(s.ptr + 1, "\0\0\0", 3) == 0)
        return PROA_FOREST_TREELITE;
    if (proa_str_starts(s, proa_str_c("{"))) return detect_braced(s);
    if (proa_str_starts(s, proa_str_c("N"))) return PROA_FOREST_XGBOOST_UBJ;
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[0]) && s.ptr[0]) s.ptr++, s.len--;
    return proa_str_starts(s, proa_str_c("{")) ? PROA_FOREST_XGBOOST_JSON : PROA_FOREST_AUTO;
}

static proa_status read_format(proa_forest **out, proa_str bytes, proa_forest_format format, proa_err *err)
{
    if (bytes.len == 0) return PROA_FAIL(err, CORRUPT, "the file is empty");
    switch (format == PROA_FOREST_AUTO ? detect_format(bytes) : format) {
    case PROA_FOREST_XGBOOST_JSON: return proa_forest_read_xgboost(out, bytes, false, err);
    case PROA_FOREST_XGBOOST_UBJ: return proa_forest_read_xgboost(out, bytes, true, err);
    case PROA_FOREST_LIGHTGBM: return proa_forest_read_lightgbm(out, bytes, err);
    case PROA_FOREST_TREELITE: return proa_forest_read_treelite(out, bytes, err);
    default: break;
    }
    if (proa_str_starts(bytes, proa_str_c("binf")))
        return PROA_FAIL(err, UNSUPPORTED, "XGBoost's old binary format: save the model again as .json or .ubj");
    return PROA_FAIL(err, UNSUPPORTED, "not a model of XGBoost (JSON, UBJSON), LightGBM (text) or treelite");
}

proa_status proa_forest_parse(proa_forest **out, proa_str bytes, proa_forest_format format, const char *what,
                              proa_err *err)
{
    *out = NULL;
    proa_status status = read_format(out, bytes, format, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s", what);
    return status;
}

proa_status proa_forest_open(proa_forest **out, const char *path, proa_forest_format format, proa_err *err)
{
    proa_mmap map;
    *out = NULL;
    PROA_TRY(proa_mmap_open(&map, path, err));
    proa_status status;
    if (map.bytes > PROA_FOREST_BYTES_MAX)
        status = PROA_FAIL(err, LIMIT, "%s: %lld bytes, at most %lld are read", path, (long long)map.bytes,
                           (long long)PROA_FOREST_BYTES_MAX);
    else
        status = proa_forest_parse(out, (proa_str){(const char *)map.ptr, (size_t)map.bytes}, format, path, err);
    if (status == PROA_OK) status = proa_mmap_check(&map, path, err);
    if (status != PROA_OK) proa_forest_free(*out), *out = NULL;
    proa_mmap_close(&map);
    return status;
}
