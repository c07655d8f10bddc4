/* SPDX-License-Identifier: Apache-2.0
 * meet.c - an invitation is "SECRET PORT ADDRESS ADDRESS ...": all addresses of this host, the loopback last. */
#include "comm/meet.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "comm/link.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SECRET_BYTES = 16,
    SECRET_TEXT = 2 * SECRET_BYTES + 1,
    FRAME_GUEST = PROA_FRAME_FIRST,
    CONNECT_MS = 3000
};

/* What a rank says first. */
typedef struct guest {
    char secret[SECRET_TEXT];
    int32_t rank;
} guest;

static proa_status make_secret(char text[SECRET_TEXT], proa_err *err)
{
    unsigned char bytes[SECRET_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return PROA_FAIL(err, IO, "no random numbers: %s", strerror(errno));
    for (int i = 0; i < SECRET_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return PROA_OK;
}

/* Appends the addresses of interfaces that are up; loopback: those of the host itself. */
static void add_addresses(char *text, size_t size, const struct ifaddrs *list, bool loopback)
{
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        char address[INET6_ADDRSTRLEN];
        size_t used = strlen(text);
        bool own = (i->ifa_flags & IFF_LOOPBACK) != 0;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) || own != loopback)
            continue;
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)i->ifa_addr;
        if (!inet_ntop(AF_INET, &in->sin_addr, address, sizeof address)) continue;
        if (used + strlen(address) + 2 <= size) snprintf(text + used, size - used, " %s", address);
    }
}

proa_status proa_meet_invite(int *fd, char *invitation, int64_t size, proa_err *err)
{
    char secret[SECRET_TEXT];
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof any;
    struct ifaddrs *list = NULL;
    PROA_TRY(make_secret(secret, err));
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&any, sizeof any) != 0 || listen(*fd, PROA_RANKS_MAX) != 0 ||
        getsockname(*fd, (struct sockaddr *)&any, &len) != 0 || getifaddrs(&list) != 0) {
        PROA_FAIL(err, IO, "cannot listen for ranks: %s", strerror(errno));
        if (*fd >= 0) close(*fd);
        return PROA_IO;
    }
    snprintf(invitation, (size_t)size, "%s %u", secret, ntohs(any.sin_port));
    add_addresses(invitation, (size_t)size, list, false);
    add_addresses(invitation, (size_t)size, list, true);
    freeifaddrs(list);
    return PROA_OK;
}

static void set_plain(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* -1: nobody came in time. */
static int accept_before(int fd, int64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t left = (until_ns - proa_clock_ns()) / 1000000;
    if (left <= 0 || poll(&p, 1, (int)left) <= 0) return -1;
    return accept4(fd, NULL, NULL, SOCK_CLOEXEC);
}

/* In a time that does not say how many characters are right. */
static bool same_secret(const char *a, const char *b)
{
    unsigned differs = 0;
    for (int i = 0; i < SECRET_TEXT - 1; i++) differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

static void greet_guest(int fd, const char *invitation, int *link, int32_t ranks, int32_t *come)
{
    guest g;
    proa_link_frame frame = {.kind = FRAME_GUEST, .bytes = &g, .room = sizeof g};
    proa_status status = proa_link_receive(fd, &frame, CONNECT_MS, NULL);
    bool known = status == PROA_OK && frame.size == (int64_t)sizeof g && g.rank > 0 && g.rank < ranks &&
                 link[g.rank] < 0 && same_secret(g.secret, invitation);
    if (!known) {
        close(fd);
        return;
    }
    set_plain(fd);
    link[g.rank] = fd;
    ++*come;
}

proa_status proa_meet_accept(int fd, const char *invitation, int *link, int32_t ranks, proa_err *err)
{
    int64_t until = proa_clock_ns() + (int64_t)PROA_RANK_START_MS * 1000000;
    int32_t come = 1;
    while (come < ranks) {
        int from = accept_before(fd, until);
        if (from >= 0) greet_guest(from, invitation, link, ranks, &come);
        else if (proa_clock_ns() >= until) break;
    }
    for (int32_t i = 1; i < ranks; i++)
        if (link[i] < 0)
            return PROA_FAIL(err, UNAVAILABLE, "rank %d has not connected within %d s", i,
                             PROA_RANK_START_MS / 1000);
    return PROA_OK;
}

static int connect_to(const char *address, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    const struct timeval limit = {.tv_sec = CONNECT_MS / 1000};
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1) return -1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* of connect(2), too */
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

proa_status proa_meet_join(int *link, const char *invitation, int32_t rank, proa_err *err)
{
    guest g = {.rank = rank};
    char address[64];
    unsigned port;
    int used;
    if (strlen(invitation) < SECRET_TEXT || sscanf(invitation + SECRET_TEXT, "%5u%n", &port, &used) != 1)
        return PROA_FAIL(err, CORRUPT, "what rank 0 has announced is no address");
    memcpy(g.secret, invitation, SECRET_TEXT - 1);
    *link = -1;
    for (const char *at = invitation + SECRET_TEXT + used;
         *link < 0 && sscanf(at, "%63s%n", address, &used) == 1; at += used)
        *link = connect_to(address, (uint16_t)port);
    if (*link < 0) return PROA_FAIL(err, UNAVAILABLE, "rank %d cannot connect to rank 0", rank);
    set_plain(*link);
    return proa_link_send(*link, FRAME_GUEST, &g, sizeof g, err);
}
