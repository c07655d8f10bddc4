/* SPDX-License-Identifier: Apache-2.0
 * renew.c - decides when keys are fetched, and handles failures. */
#include "hub/cloud/identity/renew.h"

#include "base/checked.h"
#include "base/log.h"
#include "hub/cloud/identity/fetch.h"
#include <string.h>
#include <time.h>

static proa_status fetch_key(proa_cloud_key *out, const proa_cloud_credentials *c, const proa_crypto *crypto,
                             proa_err *err)
{
    switch (c->source) {
    case PROA_CLOUD_FIXED:
    case PROA_CLOUD_AWS_WEB_IDENTITY:
    case PROA_CLOUD_AWS_CONTAINER:
    case PROA_CLOUD_AWS_INSTANCE: return proa_cloud_fetch_aws(out, c, crypto, err);
    case PROA_CLOUD_GOOGLE_KEY:
    case PROA_CLOUD_GOOGLE_USER:
    case PROA_CLOUD_GOOGLE_FEDERATED:
    case PROA_CLOUD_GOOGLE_INSTANCE: return proa_cloud_fetch_google(out, c, crypto, err);
    case PROA_CLOUD_AZURE_CLIENT:
    case PROA_CLOUD_AZURE_APP:
    case PROA_CLOUD_AZURE_INSTANCE: return proa_cloud_fetch_azure(out, c, err);
    }
    return PROA_OK;
}

/* A service that a machine of the cloud may have without any configuration: no response is not an error. */
static bool is_guess(const proa_cloud_credentials *c)
{
    return !c->role.arn[0] && (c->source == PROA_CLOUD_AWS_INSTANCE || c->source == PROA_CLOUD_GOOGLE_INSTANCE ||
                               c->source == PROA_CLOUD_AZURE_INSTANCE);
}

static const char *source_of(const proa_cloud_credentials *c)
{
    return c->role.arn[0] ? "an assumed role" : proa_cloud_source_name(c->source);
}

/* When a key is fetched again: some minutes before it expires, or after half of a short lifetime. Metadata services
 * return expired keys while their own source fails; such a key is used in the meantime. */
static int64_t next_after(const proa_cloud_key *key, int64_t now)
{
    int64_t left = key->until_s - now;
    if (!key->until_s) return INT64_MAX;
    if (left <= 0) return now + PROA_CLOUD_RENEW_PAUSE_SECS;
    return key->until_s - proa_min64(PROA_CLOUD_RENEW_SECS, (left + 1) / 2);
}

static void after_failure(proa_cloud_renewal *r, proa_cloud_credentials *c, int64_t now)
{
    bool left = c->key.until_s > now;
    proa_err_prefix(&r->err, "no credentials from %s", source_of(c));
    r->next_s = now + (left || is_guess(c) ? PROA_CLOUD_RENEW_PAUSE_SECS : PROA_CLOUD_RENEW_AGAIN_SECS);
    if (left) PROA_LOG(WARNING, "%s; the ones before are used", r->err.text);
    else if (is_guess(c))
        snprintf(r->missed, sizeof r->missed, "%.*s", (int)sizeof r->missed - 1, r->err.text);
    if (!left && !is_guess(c)) return;
    if (!left) c->key.secret[0] = c->key.token[0] = '\0';
    proa_err_clear(&r->err);
}

proa_status proa_cloud_renew(proa_cloud_renewal *r, proa_cloud_credentials *c, const proa_crypto *crypto,
                             proa_err *err)
{
    int64_t now = (int64_t)time(NULL);
    if (c->source == PROA_CLOUD_FIXED && !c->role.arn[0]) return PROA_OK;
    if (now < r->next_s) return proa_err_copy(err, &r->err);
    proa_err_clear(&r->err);
    proa_cloud_key key = c->key; /* fields that the source does not set are kept: Azure's account */
    if (fetch_key(&key, c, crypto, &r->err) != PROA_OK) {
        after_failure(r, c, now);
        return proa_err_copy(err, &r->err);
    }
    if (!r->next_s) PROA_LOG(INFO, "credentials come from %s", source_of(c));
    c->key = key;
    r->next_s = next_after(&key, now);
    r->missed[0] = '\0';
    return PROA_OK;
}
