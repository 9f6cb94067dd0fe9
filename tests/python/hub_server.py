"""A model hub on this machine, as far as huggingface_hub asks one for a file: HEAD and GET of /ORG/NAME/resolve/REVISION/FILE, with the headers and
error codes of the real one."""
import contextlib
import hashlib
import http.server
import threading


class Hub(http.server.BaseHTTPRequestHandler):
    repositories = {}  # {"org/name": ({revision: commit}, {commit: {file: bytes}})}
    asked = []  # the method and path of every request
    sizes = {}  # {path: the size that is said}; None: none is said
    on_head = None  # called after the answer to a HEAD

    def _answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self):
        self.asked.append((self.command, self.path))
        where = self.path.split("/")
        repository = self.repositories.get("/".join(where[1:3]))
        if not repository:
            return self._answer(404, X_Error_Code="RepoNotFound")
        revisions, commits = repository
        commit = revisions.get(where[4], where[4])
        if commit == "gated":
            return self._answer(403, X_Error_Code="GatedRepo")
        if commit not in commits:
            return self._answer(404, X_Error_Code="RevisionNotFound")
        data = commits[commit].get("/".join(where[5:]))
        if data is None:
            return self._answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        size = self.sizes.get(self.path, len(data))
        self._answer(200, data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', X_Repo_Commit=commit, **({} if size is None else {"Content_Length": str(size)}))
        if self.command == "HEAD" and Hub.on_head:
            Hub.on_head()

    do_HEAD = do_GET

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def serving():
    """The address of a hub that runs while the block lasts."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
