"""Jupyter kernels for the sandbox's code interpreter: one ipykernel for each context.

Started by the server beside it (driver.rs), in a folder of its own in the root of the sandbox's file system, which
programs of the sandbox see as the root, as a rule. The server writes a line of JSON for each thing to do; every answer
is a line that begins with the number of the call:

    {"call": 7, "do": "create", "context": "a", "cwd": "/x",     7 {"fault": "..."}  (a line only if it failed)
     "without_root": "/tmp/sandbox/x"}
    {"call": 8, "do": "execute", "context": "a", "code": "1",    8 {"type": "result", ...}  (events, for the client)
     "env_vars": {}}
    {"call": 9, "do": "restart" | "remove", "context": "a"}
    {"do": "taken", "call": 8, "bytes": 100}                     the client has taken so much of the answer
    {"do": "left", "call": 8}                                    nobody reads the rest; what does not run yet is off
    {"do": "interrupt", "call": 8}                               nobody wants the rest

A line with nothing but the number ends the call. Sockets of kernels are files in the folder: no other user can
connect to them, and they go with the sandbox. The sandbox may be stopped at any moment for any time, so nothing
here depends on how long something takes.
"""

import asyncio
import json
import os
import signal
import sys

from kernel import Fault, Kernel, to_json

# Bytes of all answers together that no client has taken; beyond, large results are left out.
HELD_MAX = 64 << 20

# Around a cell that has variables of its own: they are there for as long as it runs.
SET_VARIABLES = """(lambda shell, environ, new: (
    setattr(shell, "_cell_variables", {{name: environ.get(name) for name in new}}), environ.update(new)
))(__import__("IPython").get_ipython(), __import__("os").environ, {variables!r})"""
RESET_VARIABLES = """(lambda shell, environ: [
    environ.pop(name, None) if value is None else environ.update({name: value})
    for name, value in shell.__dict__.pop("_cell_variables", {}).items()
])(__import__("IPython").get_ipython(), __import__("os").environ)"""


class Call:
    """Something that the server wants done, until the line that ends it."""

    def __init__(self, driver, number):
        self.driver = driver
        self.number = number
        self.unread = 0
        self.left = False
        self.ended = False
        # Its code has begun to run; that is not wanted any more.
        self.begun = False
        self.cancelled = False
        # Set at every change that a kernel waits for.
        self.changed = asyncio.Event()

    def say(self, message):
        if not self.left:
            line = b"%d %s\n" % (self.number, to_json(message))
            self.count(len(line))
            self.driver.output.write(line)

    def count(self, change):
        self.unread += change
        self.driver.unread += change

    def has_room(self, size):
        return self.driver.unread + size <= HELD_MAX

    def end(self):
        self.ended = True
        self.driver.output.write(b"%d\n" % self.number)
        self.forget()

    def taken(self, count):
        self.count(-count)
        self.changed.set()

    def leave(self):
        self.left = True
        self.count(-self.unread)
        self.changed.set()
        if not self.begun:
            self.cancelled = True
        self.forget()

    def interrupt(self):
        self.cancelled = True
        self.changed.set()

    def forget(self):
        if self.ended and self.left:
            self.driver.calls.pop(self.number, None)


class Context:
    """Variables that stay from cell to cell, and a queue of cells."""

    def __init__(self, folder, cwd):
        self.folder = folder
        self.cwd = cwd
        self.kernel = None
        self.removed = False
        self.turn = asyncio.Lock()
        self.starting = asyncio.Lock()

    async def running(self):
        """Its kernel; another one if that has ended."""
        async with self.starting:
            if self.removed:
                raise Fault("the context was removed")
            if self.kernel is None or self.kernel.ended.done():
                self.kernel = Kernel(self.folder, self.cwd)
                try:
                    await self.kernel.start()
                except Exception as error:
                    self.kernel.end("it could not be started")
                    raise Fault("the kernel has not started: %s" % error) from error
                if self.removed:
                    raise Fault("the context was removed")
            return self.kernel

    async def execute(self, call, code, variables):
        async with self.turn:
            if call.cancelled:
                return
            try:
                kernel = await self.running()
                if variables:
                    await kernel.run(SET_VARIABLES.format(variables=variables))
                if not call.cancelled:
                    call.begun = True
                    await kernel.run(code, call)
                if variables:
                    await kernel.run(RESET_VARIABLES)
                if kernel.ended.done() and not kernel.exits:
                    raise Fault("the kernel has ended, and its variables are lost: %s" % kernel.ended.result())
            except Exception as fault:
                call.say({"type": "error", "name": "KernelError", "value": str(fault), "traceback": ""})
            call.say({"type": "end_of_execution"})

    def stop(self, why):
        if self.kernel:
            self.kernel.end(why)


class Driver:
    """What the server wants done, and the contexts that it knows."""

    def __init__(self, folder, output):
        self.folder = folder
        self.root = os.path.dirname(folder)
        self.output = output
        self.unread = 0
        self.calls = {}
        self.contexts = {}

    async def act(self, call, order):
        try:
            name, what = order["context"], order["do"]
            if what == "create":
                cwd = order["cwd"] if self.root == "/" else order["without_root"]
                self.contexts[name] = Context(self.folder, cwd)
                await self.contexts[name].running()
            elif what == "execute":
                await self.contexts[name].execute(call, order["code"], order["env_vars"])
            elif what == "restart":
                self.contexts[name].stop("it was restarted")
                await self.contexts[name].running()
            elif what == "remove":
                context = self.contexts.pop(name)
                context.removed = True
                context.stop("its context was removed")
        except Exception as fault:
            call.say({"fault": str(fault)})
        finally:
            call.end()

    def wake(self):
        for context in self.contexts.values():
            if context.kernel:
                context.kernel.wake()

    async def serve(self, lines):
        tasks = set()
        async for line in lines:
            order = json.loads(line)
            number, what = order["call"], order["do"]
            if what in ("taken", "left", "interrupt"):
                call = self.calls.get(number)
                if call and what == "taken":
                    call.taken(order["bytes"])
                elif call and what == "left":
                    call.leave()
                elif call:
                    call.interrupt()
                continue
            call = self.calls[number] = Call(self, number)
            task = asyncio.create_task(self.act(call, order))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


def environment(folder):
    """What kernels find beside what all programs of the sandbox do."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        os.environ[name] = os.path.join(folder, name.lower())
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    # By this a kernel notices the end of this process.
    os.environ["JPY_PARENT_PID"] = str(os.getpid())


async def main(folder):
    # What is printed by accident goes to the log.
    output, loop = os.fdopen(os.dup(1), "wb", buffering=0), asyncio.get_running_loop()
    os.dup2(2, 1)
    environment(folder)
    lines = asyncio.StreamReader(limit=1 << 28)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    transport, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
    driver = Driver(folder, transport)
    loop.add_signal_handler(signal.SIGCONT, driver.wake)
    try:
        await driver.serve(lines)
    finally:
        for context in driver.contexts.values():
            context.stop("the interpreter ends")


asyncio.run(main(os.getcwd()))
