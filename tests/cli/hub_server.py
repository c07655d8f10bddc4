# SPDX-License-Identifier: Apache-2.0
"""A hub on this machine, with the API that huggingface_hub and Proa use, and with faults on demand.

Small files come from the hub itself; large ones (LFS) are redirected to a second server on another port, as the hub does it
with its CDN. Both note every request.
"""
import contextlib
import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse

LFS_BYTES = 1000  # larger files are large ones


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def is_lfs(data):
    return len(data) > LFS_BYTES


def etag(data):
    return sha256(data) if is_lfs(data) else git_sha1(data)


class Repo:
    def __init__(self, files, commit="a" * 40, tags=()):
        self.commits = {commit: dict(files)}
        self.refs = {"main": commit, **{tag: commit for tag in tags}}
        self.token = self.gated = None
        self.sizes = True  # the list has sizes and checksums
        self.moved_to = None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        hub = self.server.hub
        self.url = urllib.parse.urlsplit(self.path)
        note = {"method": self.command, "path": urllib.parse.unquote(self.url.path), "cdn": self.server is hub.cdn,
                "range": self.headers.get("Range"), "token": self.headers.get("Authorization")}
        with hub.lock:
            hub.requests.append(note)
            fault = next((f for f in hub.faults if f["count"] > 0 and re.search(f["match"], note["path"]) and
                          f["cdn"] in (None, note["cdn"]) and f["method"] in (None, self.command)), None)
            if fault:
                fault["count"] -= 1
        if fault and "code" in fault:
            self.answer(fault["code"], fault.get("body", b""), fault.get("headers", {}))
        elif note["cdn"]:
            self.send_lfs(fault or {})
        else:
            self.route(note["path"], fault or {})

    do_HEAD = do_GET

    def answer(self, code, body=b"", headers=None):
        self.send_response(code)
        for name, value in {"Content-Length": len(body), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def route(self, path, fault):
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path)
        if found:
            return self.api(*found.groups())
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        return self.resolve(*found.groups(), fault) if found else self.answer(404)

    def refuse(self, repo):
        """Whether access was refused, with the hub's own answers."""
        if repo is None:
            self.answer(401, b'{"error":"Invalid username or password."}', {"X-Error-Code": "RepoNotFound"})
        elif repo.gated and self.headers.get("Authorization") != f"Bearer {repo.gated}":
            self.answer(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        elif repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            self.answer(401, b"", {"X-Error-Code": "RepoNotFound"})
        else:
            return False
        return True

    def commit_of(self, repo, revision):
        commit = repo.refs.get(revision, revision)
        if commit in repo.commits:
            return commit
        self.answer(404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"})
        return None

    def api(self, name, kind, revision):
        repo = self.server.hub.repos.get(name)
        if self.refuse(repo):
            return
        if repo.moved_to:
            self.answer(307, b"", {"Location": self.path.replace(name, repo.moved_to)})
            return
        commit = self.commit_of(repo, revision or "main")
        if not commit:
            return
        files = repo.commits[commit]
        if kind == "tree":
            body = [{"type": "file", "path": p, "size": len(d), "oid": git_sha1(d),
                     **({"lfs": {"oid": sha256(d), "size": len(d), "pointerSize": 134}} if is_lfs(d) else {})}
                    for p, d in files.items()]
        else:
            body = {"id": name, "sha": commit, "siblings": [self.sibling(p, d, repo.sizes) for p, d in files.items()]}
        self.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    @staticmethod
    def sibling(path, data, sizes):
        one = {"rfilename": path}
        if sizes:
            one.update(size=len(data), blobId=git_sha1(data))
            if is_lfs(data):
                one["lfs"] = {"size": len(data), "sha256": sha256(data), "pointerSize": 134}
        return one

    def resolve(self, name, revision, path, fault):
        hub = self.server.hub
        repo = hub.repos.get(name)
        if self.refuse(repo):
            return
        if repo.moved_to:
            self.answer(307, b"", {"Location": self.path.replace(name, repo.moved_to)})
            return
        commit = self.commit_of(repo, revision)
        if not commit:
            return
        data = repo.commits[commit].get(path)
        if data is None:
            self.answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag(data)}"'}
        if is_lfs(data):
            hub.blobs[sha256(data)] = data
            headers.update({"X-Linked-Size": len(data), "X-Linked-Etag": f'"{sha256(data)}"',
                            "Location": f"{hub.cdn_url}/lfs/{sha256(data)}?signature=secret"})
            self.answer(302, b"", headers)
        elif self.command == "HEAD":
            self.answer(200, b"", {**headers, "Content-Length": len(data)})
        else:
            self.send_file(data, headers, fault)

    def send_lfs(self, fault):
        data = self.server.hub.blobs.get(self.url.path.rsplit("/", 1)[1])
        if data is None:
            self.answer(404)
        else:
            self.send_file(data, {"ETag": '"of-the-cdn"'}, fault)

    def send_file(self, data, headers, fault):
        """With Range, unless the fault `no_ranges` says not to. Faults: wrong, cut_at, rate (bytes a second)."""
        first, last = 0, len(data) - 1
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if found and not fault.get("no_ranges"):
            first, last = int(found[1]), min(int(found[2] or last), last)
            if first >= len(data):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        part = data[first:last + 1]
        if fault.get("wrong"):
            part = b"\xff" + part[1:]
        self.send_response(206 if "Content-Range" in headers else 200)
        for name, value in {**headers, "Content-Length": len(part)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        hub = self.server.hub
        with hub.lock:
            hub.sending += 1
            hub.sending_most = max(hub.sending_most, hub.sending)
        try:
            self.send_part(part[:fault.get("cut_at", len(part))], fault.get("rate"))
        except OSError:
            self.close_connection = True
        finally:
            with hub.lock:
                hub.sending -= 1
        if "cut_at" in fault:
            self.close_connection = True

    def send_part(self, part, rate):
        step = max(1, rate // 20) if rate else 1 << 20
        for at in range(0, len(part), step):
            self.wfile.write(part[at:at + step])
            with self.server.hub.lock:
                self.server.hub.bytes_sent += len(part[at:at + step])
            if rate:
                time.sleep(0.05)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):  # a client that has gone
        pass


class Hub:
    def __init__(self):
        self.repos, self.requests, self.faults, self.blobs = {}, [], [], {}
        self.lock = threading.Lock()
        self.sending = self.sending_most = self.bytes_sent = 0
        self.main, self.cdn = (Server(("127.0.0.1", 0), Handler) for _ in range(2))
        for server in (self.main, self.cdn):
            server.hub = self
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.main.server_port}"
        self.cdn_url = f"http://127.0.0.1:{self.cdn.server_port}"

    def fault(self, match, count=1, cdn=None, method=None, **what):
        self.faults.append({"match": match, "count": count, "cdn": cdn, "method": method, **what})

    def gets(self, match=""):
        """Requests for bytes of files."""
        return [r for r in self.requests if r["method"] == "GET" and "/api/" not in r["path"] and re.search(match, r["path"])]

    def clear(self):
        self.requests.clear()
        self.faults.clear()
        self.bytes_sent = 0

    def close(self):
        for server in (self.main, self.cdn):
            server.shutdown()
            server.server_close()


@contextlib.contextmanager
def running():
    hub = Hub()
    try:
        yield hub
    finally:
        hub.close()
