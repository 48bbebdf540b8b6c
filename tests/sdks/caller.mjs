// Does with E2B's SDKs what each line of stdin says, and tells on stdout what came of it.
//
// A line is [URL of sandboxes, sandbox, operation]. The answer to it is {"value": ...}, or {"error": [class, bases...],
// "message": ...}.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

// Modules are looked for where it is started, not beside this file.
const load = createRequire(`${process.cwd()}/`)
const { Sandbox } = load('e2b')
const { Sandbox: Interpreter } = load('@e2b/code-interpreter')

const operations = {
  read: (sandbox) => sandbox.files.read('/a'),
  write: async (sandbox) => (await sandbox.files.write('/a', 'hello')).path,
  list: async (sandbox) => (await sandbox.files.list('/')).map((entry) => entry.name),
  make_dir: (sandbox) => sandbox.files.makeDir('/a'),
  exists: (sandbox) => sandbox.files.exists('/a'),
  run: async (sandbox) => (await sandbox.commands.run('echo hello')).stdout,
  kill: (sandbox) => sandbox.commands.kill(5),
  is_running: (sandbox) => sandbox.isRunning(),
  run_code: async (sandbox) => (await sandbox.runCode('1 + 1')).text,
}

const classes = (error) => {
  const names = []
  for (let kind = error?.constructor; kind?.name && kind !== Error; kind = Object.getPrototypeOf(kind)) {
    names.push(kind.name)
  }
  return names.length ? names : [error?.name ?? String(error)]
}

const sandboxes = new Map()

const sandboxAt = async (url, name, operation) => {
  const kind = operation === 'run_code' ? Interpreter : Sandbox
  const key = `${url} ${name} ${kind === Interpreter}`
  if (!sandboxes.has(key)) {
    sandboxes.set(key, await kind.connect(name, { sandboxUrl: url }))
  }
  return sandboxes.get(key)
}

for await (const line of createInterface({ input: process.stdin })) {
  const [url, name, operation] = JSON.parse(line)
  let answer
  try {
    answer = { value: await operations[operation](await sandboxAt(url, name, operation)) }
  } catch (error) {
    answer = { error: classes(error), message: String(error?.message ?? error) }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit(0)
