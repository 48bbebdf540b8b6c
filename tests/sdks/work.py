"""Works in sandboxes that sleep in between, as E2B's documentation has it, and says line by line what came of it.

The argument is the work. Every SDK of every generation is to say the same.
"""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from e2b import AsyncSandbox, CommandExitException, PtySize

from shared import ASLEEP_AND_BACK, attempt, create, say, state, until


def fetch(url, **options):
    try:
        with urlopen(Request(url, **options), timeout=30) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


def wakes(sandbox):
    api = os.environ.get("E2B_API_URL") or f"https://api.{os.environ['E2B_DOMAIN']}"
    headers = {"X-API-KEY": os.environ["E2B_API_KEY"]}
    return json.loads(fetch(f"{api}/playground/sandboxes/{sandbox.sandbox_id}", headers=headers)[1])["wakes"]


def ended(call):
    try:
        result = call()
    except CommandExitException as error:
        result = error
    return result.exit_code, result.stdout.strip(), result.stderr.strip()


def output(handle, wanted="\n"):
    """Reads on until it has said what is wanted: a whole line."""
    text = ""
    for out, _, terminal in handle:
        text += out or (terminal or b"").decode()
        if wanted in text:
            return text.strip()


def has(handle, wanted):
    return output(handle, wanted) is not None


def commands():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    run = sandbox.commands.run
    say("run", *ended(lambda: run("echo $A; pwd >&2", envs={"A": "out"}, cwd="/tmp")))
    say("failed", *ended(lambda: run("echo out; echo err >&2; exit 3")))
    sleeper = run("sleep 600", background=True)
    say("kill", sleeper.kill(), ended(sleeper.wait)[0], sandbox.commands.kill(sleeper.pid))

    script = "n=0; while read line; do n=$((n + 1)); echo $n $line; done"
    counter = run(script, background=True, stdin=True, timeout=0)
    sandbox.commands.send_stdin(counter.pid, "one\n")
    say("counter", output(counter))
    counter.disconnect()
    sandbox.pause()
    say("woken", *ended(lambda: run("echo hello")), wakes(sandbox))
    sandbox.pause()
    say("listed", [one.pid for one in sandbox.commands.list()] == [counter.pid], wakes(sandbox))
    counter = sandbox.commands.connect(counter.pid)
    sandbox.commands.send_stdin(counter.pid, "two\n")
    say("counter", output(counter))
    say("kill", counter.kill())
    until(lambda: sandbox.commands.list() == [])
    sandbox.kill()
    # Not running to some, not found to others.
    say("gone", str(attempt(lambda: run("true"))).startswith("error: not "))


def cut():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    handle = sandbox.commands.run("while sleep 0.1; do echo tick; done", background=True)
    output(handle)
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(attempt, handle.wait)
        sandbox.pause()
        say("cut", waits.result(), state(sandbox), wakes(sandbox))
    again = sandbox.commands.connect(handle.pid)
    say("again", output(again), again.kill(), wakes(sandbox))
    sandbox.kill()


def crowd():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)

    async def all_at_once():
        same = await AsyncSandbox.connect(sandbox.sandbox_id)
        await same.pause()
        results = await asyncio.gather(*(same.commands.run(f"echo {number}") for number in range(20)))
        say("crowd", *(result.stdout.strip() for result in results))
        say("wakes", wakes(sandbox))
        # Some generations abort the interpreter where it ends with connections just used.
        await asyncio.sleep(0.5)

    asyncio.run(all_at_once())
    sandbox.kill()


def port():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    sandbox.files.write("site/index.html", "served")
    server = "python3 -m http.server 8000 --directory site --bind $SANDBOX_IP"
    sandbox.commands.run(server, background=True, timeout=0).disconnect()
    host, base = sandbox.get_host(8000), os.environ.get("E2B_SANDBOX_URL")
    url, headers = (base, {"Host": host}) if base else (f"https://{host}", {})
    until(lambda: fetch(url, headers=headers)[0] == 200)
    sandbox.pause()
    status, body = fetch(url, headers=headers)
    say("port", status, body.decode(), state(sandbox), wakes(sandbox))
    sandbox.kill()


def large():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    data = os.urandom(1 << 20) * 100
    sandbox.pause()
    sandbox.files.write("large", data)
    say("up", sandbox.files.get_info("large").size, wakes(sandbox))
    sandbox.pause()
    say("down", bytes(sandbox.files.read("large", format="bytes")) == data, wakes(sandbox))
    sandbox.kill()


def terminal():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    pty = sandbox.pty
    session = pty.create(PtySize(rows=24, cols=80), envs={"PS1": ""}, timeout=0)
    pty.send_stdin(session.pid, b"x=40; stty size\n")
    say("terminal", has(session, "24 80"))
    pty.resize(session.pid, PtySize(rows=30, cols=100))
    pty.send_stdin(session.pid, b"stty size\n")
    say("resized", has(session, "30 100"))
    session.disconnect()
    sandbox.pause()
    session = pty.connect(session.pid)
    pty.send_stdin(session.pid, b"echo $((x + 2)) is it\n")
    say("woken", has(session, "42 is it"), wakes(sandbox))
    pty.send_stdin(session.pid, b"exit 5\n")
    say("exit", ended(session.wait)[0])
    sandbox.kill()


def watch():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    sandbox.files.make_dir("watched")
    watcher = sandbox.files.watch_dir("watched")
    sandbox.files.write("watched/a.txt", "a")
    events = []

    def seen(name):
        events.extend(watcher.get_new_events())
        return any((event.name, event.type.value) == (name, "create") for event in events)

    until(lambda: seen("a.txt"))
    say("watched", "a.txt")
    sandbox.pause()
    say("asleep", state(sandbox), wakes(sandbox))
    # Asked for what is new, it wakes and has gone on watching.
    sandbox.files.write("watched/b.txt", "b")
    until(lambda: seen("b.txt"))
    watcher.stop()
    sandbox.kill()


def stream():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)

    async def watch():
        same = await AsyncSandbox.connect(sandbox.sandbox_id)
        await same.files.make_dir("watched")
        events, gone = [], []

        async def start():
            return await same.files.watch_dir("watched", events.append, on_exit=gone.append, timeout=0)

        async def seen(name):
            while not any((event.name, event.type.value) == (name, "create") for event in events):
                await asyncio.sleep(0.05)

        await start()
        await same.files.write("watched/a.txt", "a")
        await asyncio.wait_for(seen("a.txt"), 20)
        say("watched", "a.txt")
        await same.pause()
        while not gone:
            await asyncio.sleep(0.05)
        say("asleep", state(sandbox), wakes(sandbox))
        # The pause was the end of it; it wakes to be watched again.
        watcher = await start()
        await same.files.write("watched/b.txt", "b")
        await asyncio.wait_for(seen("b.txt"), 20)
        await watcher.stop()
        # As above.
        await asyncio.sleep(0.5)

    asyncio.run(watch())
    sandbox.kill()


def signed():
    sandbox = create(lifecycle=ASLEEP_AND_BACK)
    content = {"Content-Type": "application/octet-stream"}
    up = sandbox.upload_url("a.txt", use_signature_expiration=60)
    say("up", fetch(up, data=b"signed", headers=content)[0], sandbox.files.read("a.txt"))
    down = sandbox.download_url("a.txt")
    say("down", *(part if isinstance(part, int) else part.decode() for part in fetch(down)))
    say("forged", fetch(down.replace("a.txt", "b.txt"))[0])
    sandbox.pause()
    say("asleep", fetch(down)[0], fetch(up, data=b"other", headers=content)[0], state(sandbox), wakes(sandbox))
    say("kept", sandbox.files.read("a.txt"), fetch(down)[0])
    sandbox.kill()


def code():
    from e2b_code_interpreter import Sandbox as Interpreter

    sandbox = create(Interpreter, lifecycle=ASLEEP_AND_BACK)
    sandbox.run_code("x = 1")
    sandbox.pause()
    say("x", sandbox.run_code("x += 1; x").text, wakes(sandbox))
    begun, waits = Event(), "print('begun')\nwhile not os.path.exists('go'): time.sleep(0.01)\nx += 1"
    with ThreadPoolExecutor() as pool:
        run = lambda: sandbox.run_code("import os, time; " + waits, on_stdout=lambda _: begun.set())
        runs = pool.submit(attempt, run)
        begun.wait(60)
        sandbox.pause()
        say("cut", runs.result(), state(sandbox), wakes(sandbox))
    sandbox.files.write("go", "")
    say("on", sandbox.run_code("x").text, wakes(sandbox))
    error = sandbox.run_code("print('out'); 1 / 0")
    say("error", error.error.name, error.logs.stdout[0].strip())
    sandbox.kill()


for name in sys.argv[1:]:
    globals()[name]()
