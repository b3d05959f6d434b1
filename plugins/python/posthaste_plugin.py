"""Speaks posthaste's plug-in protocol, version 1, so that a store need not.

Derive from Store, say in `capabilities` what it can do, write a method for each operation it
supports, and call serve(). Methods run in threads, several at once. They return what goes into
the answer, or raise Refusal or OSError. Paths are bytes, relative to the address, without a
slash at either end; the empty path is the address itself.

The protocol is described in docs/reference/plugin-protocol.md. Python 3.6 or later, nothing but
its standard library.
"""

import collections
import errno
import json
import os
import sys
import threading
import traceback
from urllib.parse import quote_from_bytes, unquote_to_bytes

VERSION = 1

# Longest line in either direction, and most bytes that one message carries.
LINE_BYTES_MAX = 1 << 20
PAYLOAD_BYTES_MAX = 256 << 10

# Bytes of one upload that may come before the store has taken any of them.
WINDOW_BYTES = 1 << 20

# What the names in a message may hold as they are. A percent sign and bytes that are not UTF-8
# have to be quoted; quoting more is allowed, and simpler.
PLAIN = "/~!$&'()*+,;=:@ "


class Refusal(Exception):
    """Why something was not done. `kind` is one of the error codes of posthaste."""

    def __init__(self, kind, cause=None, hint=None, status=None, locus=None, retry_after_s=None):
        super().__init__(cause or kind)
        self.members = {
            "kind": kind,
            "cause": cause,
            "hint": hint,
            "status": status,
            "locus": locus,
            "retry_after_s": retry_after_s,
        }


class Cancelled(Exception):
    """posthaste does not want the answer any more."""


class Ended(Exception):
    """posthaste is gone, or has stopped making sense."""


KINDS = {
    errno.ENOENT: "not-found",
    errno.ENOTDIR: "not-found",
    errno.EACCES: "permission-denied",
    errno.EPERM: "permission-denied",
    errno.EROFS: "permission-denied",
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "full",
    errno.EEXIST: "conflict",
    errno.EISDIR: "conflict",
    errno.ENOTEMPTY: "conflict",
    errno.ELOOP: "conflict",
    errno.EINVAL: "invalid",
    errno.ENAMETOOLONG: "invalid",
    errno.EOPNOTSUPP: "unsupported",
    errno.ECONNREFUSED: "unreachable",
    errno.ECONNRESET: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EPIPE: "unreachable",
    errno.ETIMEDOUT: "timed-out",
}


def refusal_of(error):
    """The refusal that an error of the operating system means."""
    return Refusal(KINDS.get(error.errno, "other"), error.strerror or str(error))


def quote(name):
    """Writes a name or path as text."""
    return quote_from_bytes(name, safe=PLAIN)


def unquote(text):
    """Reads what posthaste wrote for a name or path."""
    return unquote_to_bytes(text)


def entry(kind, size=0, mtime_ns=None, mode=None, name=None, version=None, stored_ns=None):
    """What a store says about one path. `kind` is file, directory, link or special."""
    found = {"kind": kind, "size": size}
    if name is not None:
        found["name"] = quote(name)
    if mtime_ns is not None:
        found["mtime"] = decimal_seconds(mtime_ns)
    if stored_ns is not None:
        found["stored"] = decimal_seconds(stored_ns)
    if mode is not None:
        found["mode"] = "%04o" % mode
    if version is not None:
        found["version"] = version
    return found


def decimal_seconds(time_ns):
    """Nanoseconds since 1970 as decimal seconds."""
    sign, time_ns = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return "%s%d.%09d" % (sign, time_ns // 10**9, time_ns % 10**9)


def nanoseconds(text):
    """Reads what decimal_seconds() writes."""
    sign = -1 if text.startswith("-") else 1
    whole, _, fraction = text.lstrip("-").partition(".")
    return sign * (int(whole) * 10**9 + int((fraction + "0" * 9)[:9]))


class Request:
    """One request: what is asked, and the way to answer."""

    def __init__(self, connection, members, window):
        self.id = members["id"]
        self.op = members["op"]
        self.members = members
        self._connection = connection
        self._change = threading.Condition()
        self._window = window  # Bytes we may send.
        self._incoming = collections.deque()
        self._end = None  # The sums of an upload, once all of it has come.
        self._cancelled = False

    def path(self, key="path"):
        """A path that was sent. One that leads out of the address is refused."""
        path = unquote(self.members[key])
        if path and any(name in (b"", b".", b"..") for name in path.split(b"/")):
            raise Refusal("invalid", "the path leads elsewhere")
        if b"\0" in path:
            raise Refusal("invalid", "the path holds a zero byte")
        return path

    def get(self, key, default=None):
        """Any other member."""
        return self.members.get(key, default)

    def mtime_ns(self):
        """The time the file is to have, in nanoseconds since 1970, or None."""
        text = self.members.get("mtime")
        return None if text is None else nanoseconds(text)

    def mode(self):
        """The permission bits the file is to have, or None."""
        digits = self.members.get("mode")
        return None if digits is None else int(digits, 8)

    def alive(self):
        """Says that this takes longer. Call it at least every 20 seconds when nothing else is
        sent. Raises Cancelled when nobody waits any more."""
        self.check()
        self._connection.send({"id": self.id, "alive": True})

    def check(self):
        """Raises Cancelled when nobody waits any more."""
        if self._cancelled:
            raise Cancelled()

    def send(self, data):
        """Sends bytes of the range that was asked for, as fast as posthaste takes them."""
        data = memoryview(data)
        while data:
            with self._change:
                while self._window == 0 and not self._cancelled:
                    self._change.wait()
                self.check()
                size = min(len(data), self._window, PAYLOAD_BYTES_MAX)
                self._window -= size
            self._connection.send({"id": self.id, "data": size}, data[:size])
            data = data[size:]

    def receive(self):
        """Gives the bytes of an upload as they come; afterwards sums() tells what they were."""
        taken = 0
        while True:
            with self._change:
                while not self._incoming and self._end is None and not self._cancelled:
                    self._change.wait()
                self.check()
                if not self._incoming:
                    return
                data = self._incoming.popleft()
            yield data
            taken += len(data)
            if taken >= WINDOW_BYTES // 2:
                self._connection.send({"id": self.id, "credit": taken})
                taken = 0

    def sums(self):
        """The sums of an upload that was received, by algorithm; empty if nothing is to be
        compared."""
        return self._end or {}

    # Called by the thread that reads.

    def on_message(self, message, payload):
        with self._change:
            if payload is not None:
                self._incoming.append(payload)
            elif "end" in message:
                self._end = message["end"] or {}
            elif "credit" in message:
                self._window += message["credit"]
            elif "cancel" in message:
                self._cancelled = True
            self._change.notify_all()


class Store:
    """What is behind an address. Every method gets the request; see the protocol for what each
    operation is given and answers. Those that are not written here are refused."""

    # What it can do; what is not named it can't. See the protocol.
    capabilities = {}

    # Requests it works on at once.
    requests_max = 16

    # Where a server copies among its own files: its name, and where the address is on it.
    realm = None
    root = b""

    def __init__(self, hello):
        """`hello` is what posthaste said: scheme, address, profile, settings. The address is None
        when posthaste only wants to know what the plug-in can do. Raise Refusal when the address
        can't be served."""

    def close(self):
        """posthaste has ended: end what was started. There is no time for more."""


class Connection:
    """The way to posthaste: messages out from any thread."""

    def __init__(self, output):
        self._output = output
        self._lock = threading.Lock()

    def send(self, message, payload=None):
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise Refusal("other", "the answer is too long")
        pieces = [memoryview(line)]
        if payload is not None:
            pieces.append(memoryview(payload))
        try:
            with self._lock:
                while pieces:
                    written = os.writev(self._output, pieces)
                    while pieces and written >= len(pieces[0]):
                        written -= len(pieces.pop(0))
                    if pieces:
                        pieces[0] = pieces[0][written:]
        except BrokenPipeError:
            # Nobody reads any more, so nobody waits for anything that is still being done.
            os._exit(1)


class Plugin:
    """Reads requests and hands them to the store."""

    def __init__(self, make_store, name, version):
        self.make_store = make_store
        self.name = name
        self.version = version
        # posthaste is to read nothing but messages: what else is printed goes to standard error.
        output = os.dup(1)
        os.dup2(2, 1)
        self.connection = Connection(output)
        self.input = open(0, "rb", buffering=1 << 20, closefd=False)
        self.requests = {}
        self.lock = threading.Lock()
        self.ready = threading.Condition(self.lock)
        self.waiting = collections.deque()
        self.idle = 0
        self.window = WINDOW_BYTES
        self.store = None

    def read(self):
        """The next message and its payload; None at the end."""
        line = self.input.readline(LINE_BYTES_MAX + 1)
        if not line:
            return None
        if not line.endswith(b"\n"):
            raise Ended("a line is torn or too long")
        message = json.loads(line.decode())
        payload = None
        if "data" in message:
            payload = self.input.read(message["data"])
            if len(payload) < message["data"]:
                raise Ended("a payload is torn")
        return message, payload

    def greet(self):
        """Says hello; False when the address can't be served."""
        first = self.read()
        if first is None:
            return False
        hello = first[0]["hello"]
        if VERSION not in hello["protocols"]:
            cause = "this plug-in speaks version %d of the protocol" % VERSION
            self.refuse(None, Refusal("unsupported", cause, "update posthaste or the plug-in"))
            return False
        self.window = hello["limits"]["window_bytes"]
        if hello["address"] is not None:
            hello["address"] = unquote(hello["address"])
        try:
            self.store = self.make_store(hello)
        except OSError as error:
            self.refuse(None, refusal_of(error))
            return False
        except Refusal as refusal:
            self.refuse(None, refusal)
            return False
        answer = {
            "protocol": VERSION,
            "name": self.name,
            "version": self.version,
            "capabilities": self.store.capabilities,
            "limits": {"requests_max": self.store.requests_max, "window_bytes": WINDOW_BYTES},
        }
        if self.store.realm is not None:
            answer["realm"] = self.store.realm
            answer["root"] = quote(self.store.root)
        self.connection.send({"hello": answer})
        return True

    def refuse(self, request_id, refusal):
        members = {key: value for key, value in refusal.members.items() if value is not None}
        message = {"error": members}
        if request_id is not None:
            message["id"] = request_id
        self.connection.send(message)

    def serve(self):
        """Works until posthaste has ended."""
        if not self.greet():
            return
        while True:
            found = self.read()
            if found is None:
                return
            message, payload = found
            if "op" in message:
                self.start(Request(self.connection, message, self.window))
                continue
            with self.lock:
                request = self.requests.get(message["id"])
            # What was on its way when its request ended belongs to nobody.
            if request is not None:
                request.on_message(message, payload)

    def start(self, request):
        with self.lock:
            self.requests[request.id] = request
            self.waiting.append(request)
            if self.idle >= len(self.waiting):
                self.ready.notify()
                return
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            with self.lock:
                self.idle += 1
                while not self.waiting:
                    self.ready.wait()
                self.idle -= 1
                request = self.waiting.popleft()
            self.answer(request)

    def answer(self, request):
        method = getattr(self.store, request.op.replace("-", "_"), None)
        try:
            if method is None:
                raise Refusal("unsupported", "this plug-in can't " + request.op)
            done = method(request)
            self.forget(request)
            self.connection.send({"id": request.id, "done": done or {}})
        except Cancelled:
            self.forget(request)
            self.refuse(request.id, Refusal("cancelled"))
        except Refusal as refusal:
            self.forget(request)
            self.refuse(request.id, refusal)
        except OSError as error:
            self.forget(request)
            self.refuse(request.id, refusal_of(error))
        except Exception as error:  # A fault of the store is one request's, not the plug-in's.
            traceback.print_exc()
            self.forget(request)
            self.refuse(request.id, Refusal("other", "fault in the plug-in: %r" % error))

    def forget(self, request):
        with self.lock:
            self.requests.pop(request.id, None)


def serve(make_store, name, version):
    """Serves the store that make_store(hello) makes until posthaste has ended, then ends the
    process, whatever is still being done."""
    plugin = Plugin(make_store, name, version)
    code = 0
    try:
        plugin.serve()
    except Ended as error:
        print("%s: %s" % (name, error), file=sys.stderr)
        code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    if plugin.store is not None:
        plugin.store.close()
    sys.stderr.flush()
    # At once: requests that are still being worked on have nobody to answer.
    os._exit(code)
