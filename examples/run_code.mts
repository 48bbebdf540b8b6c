// Code that goes on where it was after its sandbox has slept.
//
//   npm install @e2b/code-interpreter tsx
//   npx tsx examples/run_code.mts    # with the environment that `client-proxy dev` says is to be exported
//
// The playground runs the code in a Python of this machine: it needs `pip install ipykernel jupyter_client` in the
// `python3` on its path, or that of `client-proxy dev --python PATH`.

import { Sandbox } from '@e2b/code-interpreter'

const sandbox: Sandbox = await Sandbox.create({ lifecycle: { onTimeout: 'pause', autoResume: true } })
await sandbox.runCode('x = 1')
console.log('x is', (await sandbox.runCode('x')).text)

await sandbox.pause()

// This is held until the sandbox runs again, and its kernel has not forgotten.
console.log('and now', (await sandbox.runCode('x += 1; x')).text)

await sandbox.kill()
