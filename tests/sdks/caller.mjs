// Does with the E2B SDK what each line of stdin says, and tells on stdout what came of it.
//
// A line is [proxy's URL, sandbox, operation]. The answer to it is {"value": ...}, or {"error": [class, bases...],
// "message": ...}.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

// Modules are looked for where it is started, not beside this file.
const { Sandbox } = createRequire(`${process.cwd()}/`)('e2b')

const operations = {
  read: (sandbox) => sandbox.files.read('/a'),
  write: async (sandbox) => (await sandbox.files.write('/a', 'hello')).path,
  list: async (sandbox) => (await sandbox.files.list('/')).map((entry) => entry.name),
  make_dir: (sandbox) => sandbox.files.makeDir('/a'),
  exists: (sandbox) => sandbox.files.exists('/a'),
  run: async (sandbox) => (await sandbox.commands.run('echo hello')).stdout,
  kill: (sandbox) => sandbox.commands.kill(5),
  is_running: (sandbox) => sandbox.isRunning(),
}

const classes = (error) => {
  const names = []
  for (let kind = error?.constructor; kind?.name && kind !== Error; kind = Object.getPrototypeOf(kind)) {
    names.push(kind.name)
  }
  return names.length ? names : [error?.name ?? String(error)]
}

const sandboxes = new Map()

const sandboxAt = async (url, name) => {
  const key = `${url} ${name}`
  if (!sandboxes.has(key)) {
    sandboxes.set(key, await Sandbox.connect(name, { sandboxUrl: url }))
  }
  return sandboxes.get(key)
}

for await (const line of createInterface({ input: process.stdin })) {
  const [url, name, operation] = JSON.parse(line)
  let answer
  try {
    answer = { value: await operations[operation](await sandboxAt(url, name)) }
  } catch (error) {
    answer = { error: classes(error), message: String(error?.message ?? error) }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit(0)
