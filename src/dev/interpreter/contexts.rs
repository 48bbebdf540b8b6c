//! The contexts of a sandbox: which there are, and where each of them works.

use std::{
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{
    answers::Answers,
    driver::{Driver, Launch},
    server::Fault,
};
use crate::dev::{envd::files::Root, random::random_name};

/// Each is a process of some tens of megabytes.
const CONTEXTS_MAX: usize = 32;
/// Executions that run or wait for their turn. Their code is in memory.
const EXECUTIONS_MAX: usize = 64;

/// As the SDKs read it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Context {
    id: String,
    language: &'static str,
    /// As the sandbox's people see it.
    cwd: String,
}

pub(super) struct Contexts {
    launch: Launch,
    root: Root,
    known: Mutex<Known>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Known {
    /// Started when it is needed, again if it has ended.
    driver: Option<Arc<Driver>>,
    /// The oldest first.
    all: Vec<Context>,
    /// The one for code that names none.
    default: Option<String>,
}

impl Contexts {
    pub(super) fn new(launch: Launch, root: Root) -> Self {
        Self { launch, root, known: Mutex::default(), places: Arc::new(Semaphore::new(EXECUTIONS_MAX)) }
    }

    /// What there still is: contexts end with their driver.
    fn known(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.driver.as_ref().is_some_and(|driver| driver.is_over()) {
            *known = Known::default();
        }
        known
    }

    pub(super) fn list(&self) -> Vec<Context> {
        self.known().all.clone()
    }

    /// Has the default context's kernel started, and waits for nothing.
    pub(super) fn start_default(self: &Arc<Self>) {
        let this = self.clone();
        tokio::spawn(async move {
            if let Ok(Some(mut starting)) = this.default_context().map(|(_, starting)| starting)
                && let Err(fault) = outcome(&mut starting).await
            {
                eprintln!("the code interpreter: {}", fault.text);
            }
        });
    }

    /// Its name, and the start of it if it was not there.
    fn default_context(&self) -> Result<(String, Option<Answers>), Fault> {
        let mut known = self.known();
        if let Some(id) = &known.default {
            return Ok((id.clone(), None));
        }
        let (context, starting) = self.add(&mut known, self.place_of("")?)?;
        known.default = Some(context.id.clone());
        Ok((context.id, Some(starting)))
    }

    /// Where a context that wants `cwd` works.
    fn place_of(&self, cwd: &str) -> Result<String, Fault> {
        // JavaScript's SDK shows what is said only with this status.
        let missing = |_| Fault::new(StatusCode::NOT_FOUND, "cwd is no folder of the sandbox's file system");
        Ok(self.root.beginning(cwd, None).map_err(missing)?.to_string())
    }

    fn add(&self, known: &mut Known, cwd: String) -> Result<(Context, Answers), Fault> {
        if known.all.len() >= CONTEXTS_MAX {
            let text = format!("{CONTEXTS_MAX} contexts are the most in one sandbox: remove one first");
            return Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, text));
        }
        let broken = |error: anyhow::Error| Fault::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"));
        let driver = match &known.driver {
            Some(driver) => driver.clone(),
            None => known.driver.insert(Driver::start(&self.launch).map_err(broken)?).clone(),
        };
        let context = Context { id: random_name(20).map_err(broken)?, language: "python", cwd };
        known.all.push(context.clone());
        // Under the lock: whoever finds it here calls after this call.
        let order = json!({ "do": "create", "context": context.id, "cwd": context.cwd,
            "without_root": on_machine(&self.root, &context.cwd) });
        Ok((context, driver.call(order, None)))
    }

    /// Returns when it can run code. Nothing is left of one that cannot, or for which nobody waits any more.
    pub(super) async fn create(&self, cwd: Option<&str>) -> Result<Context, Fault> {
        let cwd = self.place_of(cwd.unwrap_or_default())?;
        let (context, mut starting) = self.add(&mut self.known(), cwd)?;
        let unready = Unready { contexts: self, id: &context.id };
        outcome(&mut starting).await?;
        std::mem::forget(unready);
        Ok(context)
    }

    /// Waits its turn, then runs.
    pub(super) fn execute(&self, id: Option<&str>, code: &str, variables: &Value) -> Result<Answers, Fault> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| {
            let text = format!("{EXECUTIONS_MAX} executions run or wait in this sandbox: try again later");
            Fault::new(StatusCode::TOO_MANY_REQUESTS, text)
        })?;
        let id = match id {
            Some(id) => id.to_owned(),
            // Whoever starts it waits for it as everybody does, in the context's queue.
            None => self.default_context()?.0,
        };
        let order = json!({ "do": "execute", "context": id, "code": code, "env_vars": variables });
        Ok(self.known().find(&id)?.call(order, Some(place)))
    }

    /// Returns when its new kernel can run code.
    pub(super) async fn restart(&self, id: &str) -> Result<(), Fault> {
        let driver = self.known().find(id)?;
        outcome(&mut driver.call(json!({ "do": "restart", "context": id }), None)).await
    }

    pub(super) async fn remove(&self, id: &str) -> Result<(), Fault> {
        let mut removing = self.take(id)?;
        outcome(&mut removing).await
    }

    fn take(&self, id: &str) -> Result<Answers, Fault> {
        let mut known = self.known();
        let driver = known.find(id)?;
        known.all.retain(|context| context.id != id);
        known.default.take_if(|default| default == id);
        Ok(driver.call(json!({ "do": "remove", "context": id }), None))
    }
}

impl Known {
    /// Who drives the context.
    fn find(&self, id: &str) -> Result<Arc<Driver>, Fault> {
        let found = self.all.iter().any(|context| context.id == id);
        let driver = self.driver.clone().filter(|_| found);
        // What is asked for is not repeated: it may be anything.
        driver.ok_or_else(|| Fault::new(StatusCode::NOT_FOUND, "the context was not found"))
    }
}

/// Where a program begins that sees the machine's files, as `agent::enter` has it: in the sandbox's folder, if it is
/// there and can be named in JSON: a sandbox's names need not be text.
fn on_machine(root: &Root, cwd: &str) -> String {
    let held = root.place(cwd, None).ok().and_then(|place| root.directory(&place).ok());
    let path = held.and_then(|held| fs::read_link(root.path_of(&held)).ok());
    path.and_then(|path| path.into_os_string().into_string().ok()).unwrap_or_else(|| cwd.to_owned())
}

/// A context whose creator waits for it: removed when dropped.
struct Unready<'a> {
    contexts: &'a Contexts,
    id: &'a str,
}

impl Drop for Unready<'_> {
    fn drop(&mut self) {
        let _ = self.contexts.take(self.id);
    }
}

/// An answer that has a line only if something is wrong.
async fn outcome(answers: &mut Answers) -> Result<(), Fault> {
    let wrong = |text: String| Fault::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    let mut outcome = Ok(());
    while let Some(line) = answers.next().await.map_err(|lost| wrong(lost.to_string()))? {
        let told: Value = serde_json::from_slice(&line).unwrap_or_default();
        outcome = Err(wrong(told["fault"].as_str().unwrap_or("the kernel has not started").to_owned()));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;

    #[test]
    fn without_a_root_of_its_own_code_begins_in_the_sandboxs_folder_or_on_the_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("a path");
        fs::create_dir_all(top.join("home/user/data")).expect("created");
        std::os::unix::fs::symlink("/home/user/data", top.join("link")).expect("a link");
        let root = Root::new(&top).expect("a root");
        let begins = |cwd: &str| on_machine(&root, cwd);
        let below = |path: &str| top.join(path).to_str().expect("text").to_owned();
        assert_eq!(begins("/home/user"), below("home/user"));
        assert_eq!(begins("/link"), below("home/user/data"));
        assert_eq!(begins("/usr/bin"), "/usr/bin");
        assert_eq!(begins("/") + "/", below(""));
        let no_text = OsStr::from_bytes(b"\xff");
        fs::create_dir(top.join(no_text)).expect("created");
        std::os::unix::fs::symlink(no_text, top.join("plain")).expect("a link");
        assert_eq!(begins("/plain"), "/plain");
    }
}
