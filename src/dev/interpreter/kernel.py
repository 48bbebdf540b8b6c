"""One ipykernel: its process, the connection to it, and the code that it runs."""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import secrets
import signal
import stat
import sys
import time

import zmq
import zmq.asyncio
from jupyter_client.asynchronous import AsyncKernelClient

# Bytes that a kernel has said and this process not passed on, or passed on and the client not taken: beyond, the
# kernel is stopped.
UNREAD_MAX = 1 << 20
# Characters of one event of text, and of an error's; bytes of one result.
TEXT_MAX = 1 << 16
RESULT_MAX = 32 << 20
# Seconds after which code that goes on in spite of an interrupt is interrupted again.
INTERRUPT_AGAIN = 5
# Seconds after which a kernel that has replied is asked again whether it has said all.
ASK_AGAIN = 5
# Seconds, of those in which this process runs, that a kernel has to end by itself when its code has asked for that.
EXIT_MAX = os.environ.get("CLIENT_PROXY_EXIT_MAX", "")
EXIT_MAX = int(EXIT_MAX) if EXIT_MAX.isdecimal() else 5

# What the SDKs call the types of data that Jupyter knows.
NAMES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}

# Has the kernel wait, instead of dropping what it says, where more waits to be sent than its socket takes. The
# socket belongs to a thread of its own.
DROP_NOTHING = """(lambda thread: thread.schedule(
    lambda: thread.socket.setsockopt(__import__("zmq").XPUB_NODROP, 1)
))(__import__("IPython").get_ipython().kernel.iopub_thread)"""

# Has the kernel say that it is about to end, as code has asked it to (IPython's `exit`): a moment after the cell, so
# that another would begin in it. Nothing takes that back.
EXITS = "kernel_exits"
TELL_EXIT = """(lambda shell, kernel: shell.observe(
    lambda change: change["new"] and kernel.session.send(kernel.iopub_socket, %r, parent=kernel.get_parent()),
    "exit_now",
))(__import__("IPython").get_ipython(), __import__("IPython").get_ipython().kernel)""" % EXITS

PR_SET_PDEATHSIG = 1
# Looked up here: not much may be done between fork(2) and execve(2).
prctl = ctypes.CDLL(None).prctl


def die_with_parent():
    """A kernel that is stopped, or busy, does not notice by itself that nobody speaks for it any more."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def have_folder(path):
    """Code may have removed it since, put something else there, or closed it: all of that is its user's right."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        os.chmod(path, 0o700)


class Fault(Exception):
    """Something that the client is told."""


class Cell:
    """Code that a kernel runs."""

    def __init__(self, message, call):
        self.message = message
        self.call = call
        self.begun = asyncio.Event()
        self.replied = asyncio.Event()
        # What is said about them comes after all that is said about this cell.
        self.questions = []
        self.done = asyncio.Event()


class Kernel:
    """A process, and the connection to it."""

    numbers = itertools.count(1)

    def __init__(self, folder, cwd):
        self.cwd = cwd
        self.place = os.path.join(folder, "k%d" % next(self.numbers))
        self.process = None
        self.client = None
        # Tells when it has closed its end of what it says.
        self.closed = None
        self.tasks = []
        self.heard = asyncio.Event()
        self.cell = None
        # What it has said: frames of ZeroMQ with whether they are a reply, and how many bytes they are.
        self.said = asyncio.Queue()
        self.backlog = 0
        self.held = False
        # Why there is no kernel any more, once it has ended.
        self.ended = asyncio.get_running_loop().create_future()
        # A cell has asked for its end.
        self.exits = False

    async def start(self):
        """Returns when it can run code."""
        connection = {
            "transport": "ipc",
            "ip": self.place,
            "signature_scheme": "hmac-sha256",
            "key": secrets.token_hex(32),
        }
        have_folder(os.path.dirname(self.place))
        channels = ("shell", "iopub", "stdin", "control", "hb")
        connection.update({name + "_port": port for port, name in enumerate(channels, 1)})
        file = self.place + ".json"
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as written:
            json.dump(connection, written)
        # A session of its own: an interrupt reaches what the code has started, too.
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ipykernel_launcher", "-f", file, "--HistoryManager.enabled=False"),
            cwd=self.cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self.attend(self.wait())
        if self.ended.done():
            self.send_signal(signal.SIGKILL)
            raise Fault(self.ended.result())
        self.client = AsyncKernelClient(context=zmq.asyncio.Context())
        self.client.load_connection_info(connection)
        # What it says is taken at once, or it would be lost; it is stopped if that becomes too much.
        self.client.context.setsockopt(zmq.RCVHWM, 0)
        # None that nobody reads: code in the kernel may send by all of them.
        self.client.start_channels(stdin=False, hb=False, control=False)
        self.closed = self.client.iopub_channel.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.attend(self.receive(self.client.iopub_channel.socket, False))
        self.attend(self.receive(self.client.shell_channel.socket, True))
        self.attend(self.listen())
        # Before it is heard, what it says may be lost.
        while not self.heard.is_set():
            self.sent(self.client.kernel_info())
            await first(self.ended, self.heard.wait(), asyncio.sleep(0.2))
            if self.ended.done():
                raise Fault(self.ended.result())
        await self.run(DROP_NOTHING)
        await self.run(TELL_EXIT)

    def attend(self, coroutine):
        """Has it go on until there is no kernel any more, or ends the kernel with it."""

        def over(task):
            if not task.cancelled() and task.exception():
                self.end("nobody attends to it any more: %r" % task.exception())

        task = asyncio.create_task(coroutine)
        task.add_done_callback(over)
        self.tasks.append(task)

    def send_signal(self, number, send=os.killpg):
        # It may have ended, which is heard of soon.
        with contextlib.suppress(ProcessLookupError):
            send(self.process.pid, number)

    def sent(self, message):
        """jupyter_client sends past the asyncio of pyzmq, which would not notice then what has come meanwhile."""
        self.client.shell_channel.socket.get(zmq.EVENTS)
        return message

    async def wait(self):
        code = await self.process.wait()
        if self.cell and not self.ended.done():
            last = asyncio.create_task(self.hear_last())
            # A second, of those in which this process runs and the client reads: children may have the socket, too.
            waits = 10
            while waits and not self.ended.done() and not last.done():
                await first(self.ended, last, asyncio.sleep(0.1))
                waits -= not (self.cell and self.cell.call and self.cell.call.unread > UNREAD_MAX)
            last.cancel()
        self.end("signal %d" % -code if code < 0 else "exit code %d" % code)

    async def hear_last(self):
        """Returns when the process has closed its end, and all that came before is heard."""
        await self.closed.recv_multipart()
        while self.backlog or self.client.iopub_channel.socket.get(zmq.EVENTS) & zmq.POLLIN:
            await asyncio.sleep(0.01)

    def end(self, why):
        if self.ended.done():
            return
        self.ended.set_result(why)
        if self.process and self.process.returncode is None:
            self.send_signal(signal.SIGKILL)
        for task in self.tasks[1:]:
            task.cancel()
        if self.client:
            self.client.stop_channels()
            self.client.context.destroy(linger=0)
        for suffix in (".json", "-1", "-2", "-3", "-4", "-5"):
            with contextlib.suppress(OSError):
                os.unlink(self.place + suffix)

    async def receive(self, socket, is_reply):
        while True:
            frames = await socket.recv_multipart()
            self.backlog += sum(map(len, frames))
            self.said.put_nowait((is_reply, frames))
            self.balance()
            # To await what has come already lets nothing else run.
            await asyncio.sleep(0)

    async def listen(self):
        session = self.client.session
        while True:
            is_reply, frames = await self.said.get()
            try:
                message = session.deserialize(session.feed_identities(frames)[1])
                await self.sort(is_reply, message, message["parent_header"].get("msg_id"))
            except Exception as error:
                # Code in the kernel can send anything.
                print("a message of the kernel is left out: %.200r" % error, file=sys.stderr)
            self.backlog -= sum(map(len, frames))
            self.balance()
            # Neither this nor what it has to read waits for anything, as a rule.
            await asyncio.sleep(0)

    async def sort(self, is_reply, message, about):
        cell = self.cell
        if is_reply:
            if cell and about == cell.message:
                cell.replied.set()
            return
        self.heard.set()
        # Threads of former cells have no listener any more.
        if cell and about == cell.message:
            await self.hear(cell, message)
        elif cell and about in cell.questions:
            cell.done.set()

    async def hear(self, cell, message):
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            cell.done.set()
        elif kind == EXITS:
            self.exits = True
        elif kind == "execute_input":
            cell.begun.set()
            count = of_type(int, content["execution_count"])
            await self.tell(cell, {"type": "number_of_executions", "execution_count": count})
        elif kind == "stream" and content["name"] in ("stdout", "stderr"):
            text, now = of_type(str, content["text"]), time.time_ns()
            for start in range(0, len(text), TEXT_MAX):
                part = text[start : start + TEXT_MAX]
                await self.tell(cell, {"type": content["name"], "text": part, "timestamp": now})
        elif kind in ("execute_result", "display_data"):
            result = as_result(content["data"], kind == "execute_result")
            size = len(to_json(result))
            await self.until_read(cell)
            text = None
            if size > RESULT_MAX:
                text = "A result of %d bytes was left out: %d is the most.\n" % (size, RESULT_MAX)
            elif cell.call and size > TEXT_MAX and not cell.call.has_room(size):
                text = "A result of %d bytes was left out: too many wait for clients to read them.\n" % size
            if text:
                result = {"type": "stderr", "text": text, "timestamp": time.time_ns()}
            await self.tell(cell, result)
        elif kind == "error":
            told = content["ename"], content["evalue"], "\n".join(content["traceback"])
            name, value, traceback = (of_type(str, part)[:TEXT_MAX] for part in told)
            await self.tell(cell, {"type": "error", "name": name, "value": value, "traceback": traceback})

    async def until_read(self, cell):
        """Returns as soon as the client has taken most of what it was told."""
        call = cell.call
        while call and call.unread > UNREAD_MAX:
            self.balance()
            call.changed.clear()
            await call.changed.wait()

    async def tell(self, cell, event):
        await self.until_read(cell)
        if cell.call:
            cell.call.say(event)
        self.balance()

    def balance(self):
        """Stops the kernel, or lets it go on: a client that reads slowly is a pipe that is full."""
        call = self.cell and self.cell.call
        unread = call.unread if call else 0
        held = max(self.backlog, unread) > (UNREAD_MAX // 2 if self.held else UNREAD_MAX)
        if held != self.held and self.process.returncode is None:
            self.held = held
            self.send_signal(signal.SIGSTOP if held else signal.SIGCONT, os.kill)

    def wake(self):
        """After a pause of the sandbox, which leaves stopped what was stopped as it began: this one is told apart."""
        if self.process and self.process.returncode is None and not self.held:
            self.send_signal(signal.SIGCONT, os.kill)

    async def ask_for_end(self, cell):
        """A kernel may drop messages all the same, the one that ends a cell too; none overtakes another."""
        await cell.replied.wait()
        while True:
            cell.questions.append(self.sent(self.client.kernel_info()))
            await asyncio.sleep(ASK_AGAIN)

    async def run(self, code, call=None):
        """Returns when the kernel has run it, or has ended. Without a call it says nothing."""
        if self.ended.done():
            return
        silent = call is None
        message = self.client.execute(code, silent=silent, store_history=not silent, stop_on_error=False)
        cell = self.cell = Cell(self.sent(message), call)
        beside = [asyncio.create_task(self.ask_for_end(cell))]
        if call:
            beside.append(asyncio.create_task(self.interrupt(cell)))
        await first(self.ended, cell.done.wait())
        for task in beside:
            task.cancel()
        self.cell = None
        # It has said its last, and is not held back for what the client has not read.
        self.balance()
        if self.exits:
            # What is to run next is not for this one. A pause of the sandbox takes one of the seconds.
            for _ in range(EXIT_MAX):
                await first(self.ended, asyncio.sleep(1))
            self.end("it was asked to")

    async def interrupt(self, cell):
        """Once nobody wants it any more; what its client takes, or its leaving, lets the kernel go on."""
        while not cell.call.cancelled:
            cell.call.changed.clear()
            await cell.call.changed.wait()
            self.balance()
        # Before, the kernel does not take interrupts for its cell's.
        await cell.begun.wait()
        while self.process.returncode is None:
            self.send_signal(signal.SIGINT)
            await asyncio.sleep(INTERRUPT_AGAIN)


def of_type(wanted, value):
    if not isinstance(value, wanted):
        raise TypeError("%s is wanted" % wanted)
    return value


def as_result(data, is_main):
    result = {"type": "result", "is_main_result": is_main}
    for kind, value in data.items():
        if kind in NAMES:
            result[NAMES[kind]] = value
        else:
            result.setdefault("extra", {})[kind] = value
    # A text is shown without its quotes, as in E2B.
    text = result.get("text")
    if isinstance(text, str) and len(text) > 1 and text[0] == text[-1] == "'":
        result["text"] = text[1:-1]
    return result


async def first(*wanted):
    """Waits for the first of them; futures go on, coroutines are cancelled."""
    made = [asyncio.ensure_future(one) for one in wanted]
    try:
        await asyncio.wait(made, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one, task in zip(wanted, made):
            if one is not task:
                task.cancel()


def to_json(message):
    """JSON as others read it, too: numbers that are none become null."""
    try:
        text = json.dumps(message, allow_nan=False)
    except ValueError:
        text = json.dumps(json.loads(json.dumps(message), parse_constant=lambda _: None))
    return text.encode()
