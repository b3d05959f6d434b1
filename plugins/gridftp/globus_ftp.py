"""What a GridFTP client does beside moving files: the library that globus-url-copy is made of.

globus-url-copy lists names, but tells neither sizes nor times, and can't rename, remove or sum.
The library it is linked with (libglobus_ftp_client, installed wherever it is) can, and keeps its
connections. This calls it through ctypes; nothing has to be compiled.
"""

import collections
import ctypes as c
import os
import threading

LIBRARIES = ("libglobus_common.so.0", "libglobus_ftp_client.so.2")

# Bytes of a buffer, and buffers of one transfer that are being filled.
BUFFER_BYTES = 256 << 10
BUFFERS = 4

# Seconds between two signs of life while the server works.
ALIVE_S = 15

COMPLETED = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_void_p)
MOVED = c.CFUNCTYPE(
    None, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int64, c.c_int
)


class GlobusError(Exception):
    """What the library or the server says."""


class Moment(c.Structure):
    """struct tm."""

    _fields_ = [
        (name, c.c_int) for name in "sec min hour mday mon year wday yday isdst".split()
    ] + [("gmtoff", c.c_long), ("zone", c.c_char_p)]


class Library:
    """The loaded library. X509 variables in the environment count when it is made."""

    def __init__(self):
        self.common, self.ftp = (c.CDLL(name, mode=c.RTLD_GLOBAL) for name in LIBRARIES)
        self.libc = c.CDLL(None)
        self.libc.free.argtypes = [c.c_void_p]
        self.common.globus_error_peek.restype = c.c_void_p
        self.common.globus_error_peek.argtypes = [c.c_uint32]
        self.common.globus_error_print_friendly.restype = c.c_void_p
        self.common.globus_error_print_friendly.argtypes = [c.c_void_p]
        # Before the first module: completions come in threads of their own.
        if self.common.globus_thread_set_model(b"pthread") != 0:
            raise OSError("globus has no threads: install libglobus_thread_pthread")
        module = c.c_char.in_dll(self.ftp, "globus_i_ftp_client_module")
        if self.common.globus_module_activate(c.byref(module)) != 0:
            raise OSError("the Globus FTP client does not start")
        self.lock = threading.Lock()
        self.idle = []

    def text(self, error):
        """What an error object says."""
        address = self.common.globus_error_print_friendly(error)
        text = c.string_at(address).decode("utf-8", "replace")
        self.libc.free(address)
        return text

    def call(self, name, *arguments):
        """Calls a function that returns a result."""
        function = getattr(self.ftp, name)
        function.restype = c.c_uint32
        result = function(*arguments)
        if result != 0:
            raise GlobusError(self.text(self.common.globus_error_peek(result)))

    def lend(self):
        """A connection that nobody uses."""
        with self.lock:
            return self.idle.pop() if self.idle else Connection(self)

    def take_back(self, connection):
        with self.lock:
            self.idle.append(connection)

    def run(self, name, *arguments, **options):
        """Makes a request of the server and waits for its answer. A connection that was idle may
        have been closed by the server: then it is made again."""
        while True:
            connection = self.lend()
            used = connection.used
            try:
                connection.run(name, *arguments, **options)
            except GlobusError as error:
                if used and is_stale(error):
                    connection.drop()
                    continue
                self.settle(connection, error)
                raise
            except BaseException:
                connection.drop()
                raise
            self.take_back(connection)
            return

    def settle(self, connection, error):
        """Keeps a connection whose server just said no."""
        if "server responded" in str(error):
            self.take_back(connection)
        else:
            connection.drop()

    # What can be asked.

    def facts(self, url, alive):
        """What the server says about a path, as MLST writes it."""
        buffer, size = c.c_void_p(), c.c_size_t()
        self.run("globus_ftp_client_mlst", url, Attributes, c.byref(buffer), c.byref(size), alive=alive)
        text = c.string_at(buffer, size.value)
        self.libc.free(buffer)
        return text

    def make_directory(self, url, alive):
        self.run("globus_ftp_client_mkdir", url, Attributes, alive=alive)

    def move(self, url, to, alive):
        self.run("globus_ftp_client_move", url, to, Attributes, alive=alive)

    def delete(self, url, alive):
        self.run("globus_ftp_client_delete", url, Attributes, alive=alive)

    def set_mode(self, url, mode, alive):
        self.run("globus_ftp_client_chmod", url, c.c_int(mode), Attributes, alive=alive)

    def set_time(self, url, moment, alive):
        """`moment` is a time.struct_time in UTC."""
        time = Moment(
            moment.tm_sec, moment.tm_min, moment.tm_hour,
            moment.tm_mday, moment.tm_mon - 1, moment.tm_year - 1900,
        )
        self.run("globus_ftp_client_utime", url, c.byref(time), Attributes, alive=alive)

    def sum(self, url, offset, length, alive):
        """The MD5 of a range."""
        text = c.create_string_buffer(256)
        self.run(
            "globus_ftp_client_cksm", url, Attributes, text, c.c_int64(offset), c.c_int64(length),
            b"MD5", alive=alive,
        )
        return text.value.decode("ascii", "replace").lower()

    # What moves bytes.

    def listing(self, url, alive):
        """The lines of MLSD, in blocks."""
        return self.blocks(0, alive, "globus_ftp_client_machine_list", url, Attributes)

    def read(self, url, offset, length, alive):
        """The bytes of a range, in blocks; fewer if the file ends before."""
        return self.blocks(
            offset, alive, "globus_ftp_client_partial_get", url, Attributes, None,
            c.c_int64(offset), c.c_int64(offset + length),
        )

    def blocks(self, offset, alive, name, *arguments):
        for last in (False, True):
            connection = self.lend()
            try:
                first = True
                for block in connection.receive(offset, alive, name, *arguments):
                    first = False
                    yield block
            except GlobusError as error:
                stale = connection.used and is_stale(error)
                self.settle(connection, error)
                if last or not first or not stale:
                    raise
                continue
            except BaseException:
                connection.drop()
                raise
            self.take_back(connection)
            return

    def write(self, url, data, alive):
        """Stores a small file."""
        for last in (False, True):
            connection = self.lend()
            used = connection.used
            try:
                connection.send(alive, data, "globus_ftp_client_put", url, Attributes, None)
            except GlobusError as error:
                self.settle(connection, error)
                if last or not used or not is_stale(error):
                    raise
                continue
            except BaseException:
                connection.drop()
                raise
            self.take_back(connection)
            return


def is_stale(error):
    text = str(error).lower()
    return any(
        sign in text
        for sign in ("end-of-file", "connection reset", "broken pipe", "421 ", "handle not in the proper state")
    )


# Stands for the connection's own attributes in a call.
Attributes = object()


class Connection:
    """A handle of the library, with the connections it keeps. One thread at a time."""

    def __init__(self, library):
        self.library = library
        self.used = False
        self.handle, self.attributes, options = c.c_void_p(), c.c_void_p(), c.c_void_p()
        library.call("globus_ftp_client_handleattr_init", c.byref(options))
        library.call("globus_ftp_client_handleattr_set_cache_all", c.byref(options), c.c_int(1))
        library.call("globus_ftp_client_handle_init", c.byref(self.handle), c.byref(options))
        library.call("globus_ftp_client_handleattr_destroy", c.byref(options))
        library.call("globus_ftp_client_operationattr_init", c.byref(self.attributes))

    def drop(self):
        """Closes it. It must not be at work."""
        self.library.ftp.globus_ftp_client_operationattr_destroy(c.byref(self.attributes))
        self.library.ftp.globus_ftp_client_handle_destroy(c.byref(self.handle))

    def start(self, work, name, *arguments):
        attributes = c.byref(self.attributes)
        arguments = [attributes if it is Attributes else it for it in arguments]
        self.library.call(name, c.byref(self.handle), *arguments, work.on_completed, None)

    def run(self, name, *arguments, alive=None):
        work = Work(self)
        self.start(work, name, *arguments)
        try:
            work.wait(alive)
        except BaseException:
            work.abort()
            raise
        self.used = True

    def receive(self, offset, alive, name, *arguments):
        work = Work(self)
        self.start(work, name, *arguments)
        buffers = [c.create_string_buffer(BUFFER_BYTES) for _ in range(BUFFERS)]
        try:
            for buffer in buffers:
                work.read_into(buffer)
            for block in work.blocks(offset, alive):
                yield block
        except BaseException:
            work.abort()
            raise
        self.used = True

    def send(self, alive, data, name, *arguments):
        work = Work(self)
        self.start(work, name, *arguments)
        try:
            work.write(data)
            work.wait(alive)
        except BaseException:
            work.abort()
            raise
        self.used = True


class Work:
    """One request on a connection. What the library calls back, it calls in its own threads."""

    def __init__(self, connection):
        self.connection = connection
        self.library = connection.library
        self.change = threading.Condition()
        self.error = None
        self.completed = False
        self.at_end = False
        self.open = 0  # Buffers the library has.
        # Filled buffers and their lengths, by where they begin in the file. The library fills several
        # and tells of each in a thread of its own, so they come in any order.
        self.arrived = {}
        self.by_address = {}
        # Kept as long as the library may call them.
        self.on_completed = COMPLETED(self.complete)
        self.on_moved = MOVED(self.moved)

    def complete(self, _argument, _handle, error):
        with self.change:
            if error:
                self.error = GlobusError(self.library.text(error))
            self.completed = True
            self.change.notify_all()

    def moved(self, _argument, _handle, error, address, length, offset, eof):
        with self.change:
            self.open -= 1
            if error and self.error is None:
                self.error = GlobusError(self.library.text(error))
            self.at_end = self.at_end or bool(eof) or bool(error)
            if length > 0:
                self.arrived[offset] = (address, length)
            self.change.notify_all()

    def read_into(self, buffer):
        address = c.addressof(buffer)
        self.by_address[address] = buffer
        with self.change:
            if self.at_end or self.completed:
                return
            self.open += 1
        try:
            self.library.call(
                "globus_ftp_client_register_read", c.byref(self.connection.handle),
                c.c_void_p(address), c.c_size_t(BUFFER_BYTES), self.on_moved, None,
            )
        except GlobusError:
            # It ended meanwhile, which its completion tells.
            with self.change:
                self.open -= 1

    def write(self, data):
        self.data = c.create_string_buffer(data, max(len(data), 1))
        self.open += 1
        try:
            self.library.call(
                "globus_ftp_client_register_write", c.byref(self.connection.handle), self.data,
                c.c_size_t(len(data)), c.c_int64(0), c.c_int(1), self.on_moved, None,
            )
        except GlobusError:
            self.open -= 1

    def sleep(self, alive):
        """Waits for a change; now and then says that it does."""
        if not self.change.wait(ALIVE_S) and alive is not None:
            self.change.release()
            try:
                alive()
            finally:
                self.change.acquire()

    def wait(self, alive):
        with self.change:
            while not self.completed or self.open > 0:
                self.sleep(alive)
        if self.error is not None:
            raise self.error

    def blocks(self, offset, alive):
        """What is read, in the order of the file, which starts at `offset`."""
        while True:
            with self.change:
                while offset not in self.arrived and not (self.completed and self.open == 0):
                    self.sleep(alive)
                if offset not in self.arrived:
                    break
                address, length = self.arrived.pop(offset)
            buffer = self.by_address[address]
            yield memoryview(buffer)[:length].cast("B")
            offset += length
            self.read_into(buffer)
        self.wait(alive)
        if self.arrived:
            raise GlobusError("bytes %d to %d are missing" % (offset, min(self.arrived)))

    def abort(self):
        """Ends it, and waits until the library has let go of everything."""
        with self.change:
            running = not self.completed
        if running:
            self.library.ftp.globus_ftp_client_abort(c.byref(self.connection.handle))
        with self.change:
            while not self.completed or self.open > 0:
                if not self.change.wait(ALIVE_S):
                    # A library that does not let go leaves nothing to be done but to start anew.
                    os._exit(1)
